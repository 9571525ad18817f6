"""Worker processes on this machine: one a GPU, or CPU cores shared out."""

from __future__ import annotations

import os
import select
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hypic_agents.runtime.workers.child import Child, end_all
from hypic_agents.runtime.workers.contract import BuildJob, WorkerResult, WorkerSpec
from hypic_agents.runtime.workers.memory_file import MemoryFile
from hypic_agents.runtime.workers.prefix_shelf import PrefixShelf
from hypic_agents.runtime.workers.wire import load_payload

SERVE = (sys.executable, "-P", "-m", "hypic_agents.runtime.workers.serve")


class ProcessWorkers:
    """A :class:`~hypic_agents.runtime.workers.contract.WorkerGroup` of spawned processes.

    Args:
        spec: What they are.
        device: Where payloads that they made are put.
        command: What starts a worker; the number of its descriptor is appended.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        device: str = "cpu",
        *,
        command: Sequence[str] = SERVE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._device = device
        self._clock = clock
        self._shelf = PrefixShelf()
        self._trouble = ""
        self._news: list[WorkerResult] = []
        self._children = [Child(one, tuple(command)) for one in _share_out(spec)]
        # Also where an engine is dropped without being closed; but never in a fork of this process.
        self._end = weakref.finalize(self, _end_here, os.getpid(), self._children, self._shelf)
        for child in self._children:
            child.start(clock())

    @property
    def idle(self) -> tuple[int, ...]:
        return tuple(i for i, child in enumerate(self._children) if child.state == "idle")

    @property
    def alive(self) -> int:
        return sum(child.state != "gone" for child in self._children)

    @property
    def trouble(self) -> str:
        return self._trouble

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes that run."""
        return tuple(child.pid for child in self._children if child.pid is not None)

    def send(self, worker: int, job: BuildJob) -> None:
        child = self._children[worker]
        assert child.state == "idle", f"worker {worker} is {child.state}"
        try:
            prefix = self._shelf.name(job)
            if prefix is not None and prefix not in child.prefixes:
                child.send_prefix(prefix, self._shelf.fd(prefix), self._shelf.names())
            child.send_job(job, prefix)
        except OSError as error:  # no descriptor or memory is left
            child.hold(job)
            self._lose(worker, f"its job cannot be written down: {error}", self._clock())

    def poll(self) -> list[WorkerResult]:
        now = self._clock()
        for worker, child in enumerate(self._children):
            for message, file in child.receive():
                self._hear(worker, child, message, file)
            problem = child.broken(now)
            if problem:
                self._lose(worker, problem, now)
            elif child.state == "resting" and now >= child.due_s and child.reap(0.0):
                child.start(now)
        news, self._news = self._news, []
        return news

    def wait(self, timeout_s: float) -> None:
        poll = select.poll()
        open_fds = [fd for fd in (child.fileno() for child in self._children) if fd >= 0]
        for fd in open_fds:
            poll.register(fd, select.POLLIN)
        poll.poll(timeout_s * 1000)

    def cancel(self, worker: int, job_id: int) -> None:
        self._children[worker].cancel_job(job_id)

    def abandon(self, worker: int) -> None:
        child = self._children[worker]
        self._news = [one for one in self._news if one.worker != worker]
        if child.state in ("idle", "busy"):
            child.held.clear()  # of its jobs nothing is told
            self._lose(worker, "ended by the pool", self._clock())

    def close(self) -> None:
        self._end()

    def _hear(self, worker: int, child: Child, message: dict[str, Any], file: MemoryFile | None) -> None:
        op, job_id = message.get("op"), message.get("id")
        if op == "ready" and child.state == "starting":
            child.state = "idle"
        elif op == "refused":
            self._trouble = f"worker {worker} cannot work: {message.get('problem')}"
            child.end("gone")
        elif op == "computed" and job_id in child.held:
            child.computed(job_id)
        elif op in ("built", "failed", "dropped") and job_id in child.held:
            wanted = child.answered(job_id)
            if op == "failed":
                child.prefixes.clear()  # it may be for want of one
            if op == "built" and file is not None and wanted:
                child.worked()
                load, seconds = partial(load_payload, file, self._device), float(message.get("seconds", 0.0))
                self._news.append(WorkerResult(worker, job_id, load, seconds))
                return
            problem = f"worker {worker} failed: {message.get('problem', 'no payload came')}"
            self._news.append(WorkerResult(worker, job_id, None, problem=problem))

    def _lose(self, worker: int, problem: str, now: float) -> None:
        child = self._children[worker]
        self._trouble = f"worker {worker} was lost: {problem}"
        for job_id in child.held:
            self._news.append(WorkerResult(worker, job_id, None, problem=self._trouble, lost=True))
        child.lose(now)


def _end_here(pid: int, children: list[Child], shelf: PrefixShelf) -> None:
    if os.getpid() == pid:
        end_all(children)
        shelf.close()


def _share_out(spec: WorkerSpec) -> list[WorkerSpec]:
    """Every worker's own spec: its device and threads."""
    import torch

    gpus = torch.cuda.device_count() if spec.device in ("auto", "cuda") else 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # A model's copy a worker: on a CPU, memory ends long before the cores of a large machine do.
    count = spec.num_workers or gpus or (1 if spec.names_gpu else min(cores, 4))
    threads = spec.threads or max(1, cores // count)
    return [replace(spec, threads=threads, device=f"cuda:{i % gpus}" if gpus else spec.device) for i in range(count)]
