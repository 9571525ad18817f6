"""One worker process as its pool sees it: started, spoken to, ended, rested and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from hypic_agents.runtime.workers.channel import Channel, ChannelClosed
from hypic_agents.runtime.workers.contract import BuildJob, WorkerSpec
from hypic_agents.runtime.workers.memory_file import MemoryFile, write_file
from hypic_agents.runtime.workers.wire import encode_job

State = Literal["starting", "idle", "busy", "resting", "gone"]
GRACE_S = 1.0
_ENDING_S = 0.5
_ROOT = Path(__file__).resolve().parents[3]
# The allocator of glibc keeps what a build freed, in huge pages: to touch fresh pages for every tensor takes a tenth of
# a build's time, more where several workers do. The threshold is the largest that it takes.
_ALLOCATOR = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}


class Child:
    """::

        starting --ready--> idle --job--> busy --computed--> idle (its payload follows)
            |                 |            |
            '------ lost -----+------------'--> resting --backoff over--> starting,  or gone (no restart left)

    Attributes:
        sent_id: The job that a busy process computes.
        held: By id, the jobs that it has not answered, and whether each is still wanted.
        prefixes: Names of the prefixes that the process holds.
        due_s: When a starting worker is late, or a resting one starts.
    """

    def __init__(self, spec: WorkerSpec, command: tuple[str, ...]) -> None:
        self.spec = spec
        self.state: State = "gone"
        self.sent_id = -1
        self.held: dict[int, bool] = {}
        self.prefixes: set[str] = set()
        self.due_s = 0.0
        self._command = command
        self._restarts = 0
        self._problem = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def fileno(self) -> int:
        channel = self._channel  # once: another thread may end the process meanwhile
        return -1 if channel is None else channel.fileno()

    def start(self, now: float) -> None:
        """Spawn the process; it says when it is ready."""
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                ours.setblocking(False)
                self._channel = Channel(ours)
                self._process = subprocess.Popen(  # noqa: S603  our own module by our own interpreter
                    [*self._command, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # a command's output is the engine's alone
                    env=_environment(self.spec),
                )
        except OSError as error:
            self._problem = f"it could not be started: {error}"
        self.state, self.due_s = "starting", now + self.spec.start_s
        self.prefixes.clear()
        self._send({"op": "load", "spec": asdict(self.spec)})

    def send_prefix(self, name: str, fd: int, keep: list[str]) -> None:
        self._send({"op": "prefix", "name": name, "keep": keep}, fd)
        self.prefixes = {one for one in self.prefixes if one in keep} | {name}

    def hold(self, job: BuildJob) -> None:
        """The job is this process's from here on, whatever becomes of it."""
        self.state, self.sent_id = "busy", job.id
        self.held[job.id] = True

    def send_job(self, job: BuildJob, prefix: str | None) -> None:
        """Send the job.

        Raises:
            OSError: it cannot be written down; the process knows nothing of it.
        """
        fd = write_file(encode_job(job))
        self.hold(job)
        try:
            self._send({"op": "build", "id": job.id, "prefix": prefix}, fd)
        finally:
            os.close(fd)

    def computed(self, job_id: int) -> None:
        """The process is done with a job but for what it has to say of it."""
        if self.state == "busy" and job_id == self.sent_id:
            self.state = "idle"

    def answered(self, job_id: int) -> bool:
        """The process holds a job no longer; whether it is still wanted."""
        self.computed(job_id)
        return self.held.pop(job_id)

    def cancel_job(self, job_id: int) -> None:
        """The result is not wanted any more; the process may stop between two layers."""
        if job_id in self.held:
            self.held[job_id] = False
            self._send({"op": "cancel", "id": job_id})

    def worked(self) -> None:
        """The process has made a payload: restarts count in a row only, so that rare losses never add up."""
        self._restarts = 0

    def receive(self) -> list[tuple[dict[str, Any], MemoryFile | None]]:
        """What the process has said; nothing where it is silent or gone, see :meth:`broken`."""
        if self._channel is None:
            return []
        try:
            return self._channel.receive()
        except ChannelClosed as error:
            self._problem = self._problem or str(error)
            return []

    def broken(self, now: float) -> str:
        """Why the process has to be given up; empty if it need not."""
        code = self._exit_code() if self._problem else None
        if code is not None:
            return f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
        if self._problem:
            return self._problem
        if self.state == "starting" and now >= self.due_s:
            return f"it was not ready within {self.spec.start_s:g} s"
        return ""

    def _exit_code(self) -> int | None:
        """How the process ended; it may take a moment from the end of its socket to its own."""
        if self._process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_ENDING_S)
        return None

    def lose(self, now: float) -> None:
        """End the process whatever it does; rest, and start again later if restarts are left."""
        spent = self._restarts >= self.spec.max_restarts
        self.end("gone" if spent else "resting")
        self.due_s = now + self.spec.backoff_s * 2**self._restarts
        self._restarts += 1

    def end(self, state: State) -> None:
        """End the process at once."""
        self.terminate(signal.SIGKILL)
        self.reap(GRACE_S)
        self.state = state
        self.held.clear()

    def terminate(self, how: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.send_signal(how)
        if self._channel is not None:
            self._channel.close()
        self._channel, self._problem = None, ""

    def reap(self, timeout_s: float) -> bool:
        """Whether the process is over."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._process = None
        return True

    def _send(self, message: dict[str, Any], fd: int | None = None) -> None:
        if self._channel is None or self._problem:
            return
        try:
            self._channel.send(message, fd)
        except ChannelClosed as error:
            self._problem = str(error)


def end_all(children: Sequence[Child]) -> None:
    """End processes: SIGTERM to all, SIGKILL to those that are still there after a short grace."""
    for child in children:
        child.terminate(signal.SIGTERM)
        child.state = "gone"
    deadline = time.monotonic() + GRACE_S
    for child in children:
        if not child.reap(max(0.0, deadline - time.monotonic())):
            child.terminate(signal.SIGKILL)
            child.reap(GRACE_S)


def _environment(spec: WorkerSpec) -> dict[str, str]:
    threads = str(spec.threads or 1)
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**_ALLOCATOR, **os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
