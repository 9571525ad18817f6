"""One Ray actor as its group sees it: started, spoken to, killed, rested and started again."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from hypic_agents.runtime.workers.contract import BuildJob, WorkerSpec
from hypic_agents.runtime.workers.ray_session import RaySession
from hypic_agents.runtime.workers.ray_worker import CONTROL, RayWorker
from hypic_agents.runtime.workers.wire import encode_job, to_bytes

State = Literal["starting", "idle", "busy", "resting", "gone"]


class Actor:
    """States as those of :class:`~hypic_agents.runtime.workers.child.Child`.

    Attributes:
        reply: What is awaited: that the model is loaded, or a job's answer.
        payload: The bytes that come with the answer.
        job: What a busy actor was given.
        holder: The actor that was asked for a payload that it holds; None where the job is computed.
        wanted: Whether the job still is.
        prefixes: Names of the prefixes that the actor holds.
        due_s: When a starting actor is late, or a resting one starts.
    """

    def __init__(self, session: RaySession, spec: WorkerSpec, held_bytes: int) -> None:
        self.state: State = "gone"
        self.reply: Any = None
        self.payload: Any = None
        self.job: BuildJob | None = None
        self.holder: Actor | None = None
        self.wanted = False
        self.prefixes: set[str] = set()
        self.due_s = 0.0
        self._session = session
        self._held_bytes = held_bytes
        self._restarts = 0
        self._handle: Any = None
        # Ray numbers the GPUs of an actor itself, and shows it no other.
        gpus = bool(session.num_gpus) and (spec.device in ("auto", "cuda") or spec.names_gpu)
        self._spec = replace(spec, threads=spec.threads or 1, device="cuda" if gpus else spec.device)
        self._options: dict[str, Any] = {
            "num_cpus": self._spec.threads,
            "num_gpus": 1 if gpus else 0,
            # Lost actors are replaced here, where it is known what they were doing.
            "max_restarts": 0,
            "max_task_retries": 0,
            "concurrency_groups": {CONTROL: 1},
        }
        if environment := session.environment():
            self._options["runtime_env"] = {"env_vars": environment}

    def start(self, now: float) -> None:
        """Ask the cluster for an actor; it is ready when the model is loaded."""
        self._handle = self._session.ray.remote(**self._options)(RayWorker).remote(self._held_bytes)
        self.reply = self._handle.load.remote(asdict(self._spec))
        self.prefixes.clear()
        self.state, self.due_s = "starting", now + self._spec.start_s

    def send_prefix(self, name: str, ref: Any, names: Sequence[str]) -> None:
        """Have the actor hold a prefix; calls are carried out in order."""
        self._handle.keep.remote(name, ref, list(names))
        self.prefixes = {one for one in self.prefixes if one in names} | {name}

    def send_job(self, job: BuildJob, prefix: str | None) -> None:
        raw = bytes(to_bytes(encode_job(job)))
        call = self._handle.build.options(num_returns=2)
        self._await(call.remote(job.id, raw, prefix, job.hold), job, None)

    def ask(self, holder: Actor, job: BuildJob) -> None:
        """Fetch the job's payload from the actor that holds it; this one stays free for the job itself."""
        call = holder._handle.fetch.options(num_returns=2, concurrency_group=CONTROL)
        self._await(call.remote(job.hold), job, holder)

    def cancel_job(self) -> None:
        """The answer is not wanted any more; the actor may stop between two layers."""
        self.wanted = False
        if self.job is not None and self.holder is None:
            self._handle.cancel.options(concurrency_group=CONTROL).remote(self.job.id)

    def lose(self, now: float) -> None:
        """Kill the actor; rest, and start again later if restarts are left."""
        spent = self._restarts >= self._spec.max_restarts
        self.end("gone" if spent else "resting")
        self.due_s = now + self._spec.backoff_s * 2**self._restarts
        self._restarts += 1

    def end(self, state: State) -> None:
        """Kill the actor, whatever it does."""
        if self._handle is not None and self._session.is_connected:
            with contextlib.suppress(Exception):  # Ray's connection may break at any time; the actor is given up anyhow
                self._session.ray.kill(self._handle, no_restart=True)
        self._handle = self.reply = self.payload = self.job = None
        self.holder = None
        self.state = state

    def _await(self, refs: Sequence[Any], job: BuildJob, holder: Actor | None) -> None:
        self.reply, self.payload = refs
        self.job, self.holder, self.wanted, self.state = job, holder, True, "busy"
