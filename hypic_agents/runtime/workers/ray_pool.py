"""Workers on many machines: Ray actors, one model each. Payloads move through Ray's object store as checksummed bytes.

A job whose payload an actor still holds is not computed again: its bytes are fetched from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from hypic_agents.runtime.cache.entry import Payload
from hypic_agents.runtime.workers.contract import BuildJob, DamagedPayload, WorkerResult, WorkerSpec
from hypic_agents.runtime.workers.ray_actor import Actor
from hypic_agents.runtime.workers.ray_holders import RayHolders
from hypic_agents.runtime.workers.ray_prefixes import RayPrefixes
from hypic_agents.runtime.workers.ray_session import RaySession, first_line
from hypic_agents.runtime.workers.wire import decode_payload

HELD_BYTES = 256 << 20
_FETCH_S = 60.0
_REST_S = 0.05


class RayWorkers:
    """A :class:`~hypic_agents.runtime.workers.contract.WorkerGroup` of Ray actors.

    Each takes a GPU where the cluster has any, else as many CPUs as ``spec.threads``, or one.

    Args:
        spec: What they are. The model's name must mean the same on every machine of the cluster.
        device: Where payloads that they made are put.
        address: Of a running cluster, as ``ray.init`` takes it; None starts one on this machine.
        held_bytes: Budget of the payloads that each actor keeps.
        init: Further arguments of ``ray.init`` where a cluster is started here.
        clock: Seconds that never go back.
        ray: The module ``ray``, or what stands for it.

    Raises:
        HypicError: Ray cannot be started.
        InvalidInput: Ray is not installed, or no cluster answers at ``address``.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        device: str = "cpu",
        *,
        address: str | None = None,
        held_bytes: int = HELD_BYTES,
        init: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        ray: Any = None,
    ) -> None:
        self._device = device
        self._clock = clock
        wanted = spec.num_workers or (1 if spec.names_gpu else None)
        self._session = RaySession(address, wanted, init=init, ray=ray)
        self._ray = self._session.ray
        self._trouble = ""
        self._news: list[WorkerResult] = []
        self._prefixes = RayPrefixes(self._ray)
        self._holders = RayHolders()
        self.fetched = 0
        self._actors = [Actor(self._session, spec, held_bytes) for _ in range(self._session.num_workers)]
        # Also where an engine is dropped without being closed; but never in a fork of this process.
        self._end = weakref.finalize(self, _end_here, os.getpid(), self._actors, self._session)
        for worker in range(len(self._actors)):
            self._start(worker, clock())

    @property
    def idle(self) -> tuple[int, ...]:
        return tuple(i for i, actor in enumerate(self._actors) if actor.state == "idle")

    @property
    def alive(self) -> int:
        return sum(actor.state != "gone" for actor in self._actors)

    @property
    def trouble(self) -> str:
        return self._trouble

    def send(self, worker: int, job: BuildJob) -> None:
        actor = self._actors[worker]
        assert actor.state == "idle", f"worker {worker} is {actor.state}"
        self._give(worker, job, self._holders.find(job))

    def poll(self) -> list[WorkerResult]:
        now = self._clock()
        if not self._session.is_connected:
            self._give_up()
        for worker in self._answered():
            self._hear(worker, now)
        for worker, actor in enumerate(self._actors):
            if actor.state == "starting" and now >= actor.due_s:
                self._lose(worker, "it was not ready in time: the cluster may lack free resources", now)
            elif actor.state == "resting" and now >= actor.due_s:
                self._start(worker, now)
        news, self._news = self._news, []
        return news

    def wait(self, timeout_s: float) -> None:
        refs = [reply for actor in self._actors if (reply := actor.reply) is not None]
        if any(actor.state == "resting" for actor in self._actors):
            timeout_s = min(timeout_s, _REST_S)
        if refs and self._session.is_connected:
            with contextlib.suppress(Exception):  # the connection has just been lost, which `poll` finds
                self._ray.wait(refs, num_returns=1, timeout=timeout_s, fetch_local=False)
                return
        time.sleep(timeout_s)  # no reply is under way, so there is nothing else to wait for

    def cancel(self, worker: int, job_id: int) -> None:
        actor = self._actors[worker]
        if actor.job is None or actor.job.id != job_id:
            return  # it has answered, or was lost
        try:
            actor.cancel_job()
        except Exception as error:  # noqa: BLE001  as for a start
            self._lose(worker, f"it cannot be spoken to: {first_line(error)}", self._clock())

    def abandon(self, worker: int) -> None:
        actor = self._actors[worker]
        self._news = [one for one in self._news if one.worker != worker]
        if actor.state in ("idle", "busy"):
            actor.state = "idle"  # of its job nothing is told
            self._lose(worker, "ended by the pool", self._clock())

    def close(self) -> None:
        self._prefixes.clear()
        self._holders.clear()
        self._end()

    def _start(self, worker: int, now: float) -> None:
        try:
            self._actors[worker].start(now)
        except Exception as error:  # noqa: BLE001  Ray raises errors of many kinds, and this one's worker only is lost
            self._lose(worker, f"it could not be started: {first_line(error)}", now)

    def _give(self, worker: int, job: BuildJob, holder: Actor | None = None) -> None:
        """Have a worker compute a job, or fetch its payload from its holder."""
        actor = self._actors[worker]
        try:
            if holder is not None:
                actor.ask(holder, job)
            else:
                actor.send_job(job, self._prefixes.provide(actor, job))
        except Exception as error:  # noqa: BLE001  as for a start
            actor.job, actor.state = job, "busy"
            self._lose(worker, f"its job cannot be sent: {first_line(error)}", self._clock())

    def _answered(self) -> list[int]:
        refs = {actor.reply: worker for worker, actor in enumerate(self._actors) if actor.reply is not None}
        if not refs:
            return []
        try:
            ready, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=0, fetch_local=False)
        except Exception:  # noqa: BLE001  the connection has just been lost, which the next call finds
            return []
        return sorted(refs[ref] for ref in ready)

    def _hear(self, worker: int, now: float) -> None:
        actor = self._actors[worker]
        reply, payload, job, holder = actor.reply, actor.payload, actor.job, actor.holder
        actor.reply = actor.payload = actor.job = actor.holder = None
        try:
            said: str = self._ray.get(reply, timeout=_FETCH_S)
        except self._ray.exceptions.RayError as error:
            if holder is not None and job is not None:
                self._missed(worker, job)
            else:
                actor.job = job
                self._lose(worker, first_line(error), now)
            return
        if job is None:
            self._take_ready(worker, said)
            return
        answer = json.loads(said)
        actor.state = "idle"
        if "problem" not in answer and actor.wanted:
            self._take_payload(worker, job, holder, payload, float(answer["seconds"]))
        elif holder is not None and actor.wanted:
            self._missed(worker, job)
        else:
            actor.prefixes.clear()  # it may have failed for want of one
            problem = f"worker {worker} failed: {answer.get('problem', 'the job was cancelled')}"
            self._news.append(WorkerResult(worker, job.id, None, problem=problem))

    def _take_ready(self, worker: int, problem: str) -> None:
        actor = self._actors[worker]
        if problem:
            self._trouble = f"worker {worker} cannot work: {problem}"
            actor.end("gone")
        else:
            actor.state = "idle"

    def _take_payload(self, worker: int, job: BuildJob, holder: Actor | None, payload: Any, seconds: float) -> None:
        self.fetched += holder is not None
        self._holders.note(job, self._actors[worker] if holder is None else holder)
        # Several payloads travel at once; the first `load` need not wait for the others.
        with contextlib.suppress(Exception):  # what cannot be had shows when it is loaded
            self._ray.wait([payload], timeout=0, fetch_local=True)
        load = partial(_load, self._ray, payload, self._device)
        self._news.append(WorkerResult(worker, job.id, load, seconds))

    def _missed(self, worker: int, job: BuildJob) -> None:
        """The holder has it no more: the actor computes it."""
        self._holders.forget(job)
        actor = self._actors[worker]
        if actor.wanted:
            self._give(worker, job)
        else:
            actor.state = "idle"
            problem = f"worker {worker} failed: the job was cancelled"
            self._news.append(WorkerResult(worker, job.id, None, problem=problem))

    def _give_up(self) -> None:
        """Ray was shut down: no worker is left, and none will come back."""
        for worker, actor in enumerate(self._actors):
            if actor.state != "gone":
                self._lose(worker, "Ray was shut down", self._clock())
                actor.end("gone")

    def _lose(self, worker: int, problem: str, now: float) -> None:
        actor = self._actors[worker]
        self._trouble = f"worker {worker} was lost: {problem}"
        if actor.state == "busy" and actor.job is not None:
            self._news.append(WorkerResult(worker, actor.job.id, None, problem=self._trouble, lost=True))
        actor.lose(now)
        self._holders.drop(actor)


def _load(ray: Any, ref: Any, device: str) -> Payload:
    try:
        return decode_payload(bytearray(ray.get(ref, timeout=_FETCH_S)), device)
    except (ray.exceptions.RayError, TypeError) as error:
        raise DamagedPayload(f"no payload: {first_line(error)}") from error


def _end_here(pid: int, actors: list[Actor], session: RaySession) -> None:
    if os.getpid() == pid:
        for actor in actors:
            actor.end("gone")
        session.close()
