"""A real worker that fails when a test asks for it: a file named like a job's first token says how, once.

``kill``, ``stop`` and ``hold`` strike between two layers of the pass; ``damage`` flips a byte of a payload; ``linger``
and ``burst`` strike before it is written down; ``fail`` raises; ``die`` ends the process while it loads. ``hold`` and
``linger`` wait for a file ``release``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypic_agents.runtime.workers.channel import ChannelClosed
from hypic_agents.runtime.workers.contract import BuildJob, WorkerSpec
from hypic_agents.runtime.workers.serve import Compute, Worker, load_compute, open_channel, publish_payload


class Faults:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._layers = 0
        self._fault = ""
        self._marked: tuple[Any, str] = (None, "")

    def load(self, spec: WorkerSpec, check: Callable[[], None]) -> tuple[Compute, str]:
        if self._claim("load") == "die":
            os._exit(7)

        def between_layers() -> None:
            self._layers += 1
            if self._layers == 2:
                self._strike(check)
            check()

        compute, device = load_compute(spec, between_layers)

        def one(job: BuildJob) -> Any:
            self._layers, self._fault = 0, self._claim(str(job.token_ids[0]))
            (self._folder / f"seen-{job.token_ids[0]}").touch()
            if self._fault == "fail":
                raise RuntimeError("out of memory, says the test")
            made = compute(job)
            if self._fault:
                self._marked = made[0], self._fault
            return made

        return one, device

    def publish(self, payload: Any) -> int:
        fault = self._marked[1] if payload is self._marked[0] else ""
        if fault == "burst":
            raise OSError(28, "no space left, says the test")
        while fault == "linger" and not (self._folder / "release").exists():
            time.sleep(0.005)
        fd = publish_payload(payload)
        if fault != "damage":
            return fd
        raw = bytearray(os.pread(fd, os.fstat(fd).st_size, 0))
        os.close(fd)
        raw[-1000] ^= 1
        damaged = os.memfd_create("damaged", os.MFD_CLOEXEC)
        os.write(damaged, raw)
        return damaged

    def _claim(self, name: str) -> str:
        """What is to go wrong, for the first worker that asks."""
        taken = self._folder / f"{name}.{os.getpid()}"
        with contextlib.suppress(OSError):
            (self._folder / name).rename(taken)
            return taken.read_text()
        return ""

    def _strike(self, check: Callable[[], None]) -> None:
        if self._fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        while self._fault == "hold" and not (self._folder / "release").exists():
            check()
            time.sleep(0.005)


if __name__ == "__main__":
    faults = Faults(Path(sys.argv[1]))
    with contextlib.suppress(ChannelClosed):
        Worker(open_channel(int(sys.argv[2])), faults.load, faults.publish).run()
