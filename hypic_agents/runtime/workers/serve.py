"""A worker process: loads the model, then computes one job after another for the pool that started it.

``python -m hypic_agents.runtime.workers.serve FD``: FD is the worker's end of a socket pair. There is no other way in.
It ends with the pool's process: a thread reads the socket all the time and sees its end even during a pass.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from hypic_agents.runtime.workers.channel import Channel, ChannelClosed
from hypic_agents.runtime.workers.contract import BuildJob, DamagedPayload, WorkerSpec

if TYPE_CHECKING:
    from hypic_agents.runtime.state import SegmentPayload
    from hypic_agents.runtime.workers.memory_file import MemoryFile

Message: TypeAlias = "tuple[dict[str, Any], MemoryFile | None]"
Compute: TypeAlias = "Callable[[BuildJob], tuple[SegmentPayload, float]]"
_CHECK_PARENT_S = 2.0


class Cancelled(Exception):
    """The job that is being computed is not wanted any more."""


class Inbox:
    """What the pool has sent, and which jobs it has taken back."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        threading.Thread(target=self._read, name="hypic inbox", daemon=True).start()

    def next(self) -> Message:
        return self._messages.get()

    def is_cancelled(self, job_id: int) -> bool:
        return job_id in self._cancelled

    def forget(self, job_id: int) -> None:
        self._cancelled.discard(job_id)

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        parent = os.getppid()
        while True:
            ready = poll.poll(_CHECK_PARENT_S * 1000)
            if os.getppid() != parent:  # a fork of the pool's process may still hold its end
                os._exit(0)
            if not ready:
                continue
            try:
                messages = self._channel.receive()
            except ChannelClosed:
                os._exit(0)
            for message, file in messages:
                if message.get("op") == "cancel":
                    self._cancelled.add(int(message["id"]))
                else:
                    self._messages.put((message, file))


class Worker:
    """One worker's loop.

    Args:
        channel: To the pool.
        load: Loads the model and returns what computes a job, and the model's device. Its second argument is called
            between layers and raises :class:`Cancelled` where the job is not wanted any more.
        publish: Writes a payload to a file; returns its descriptor.
    """

    def __init__(
        self,
        channel: Channel,
        load: Callable[[WorkerSpec, Callable[[], None]], tuple[Compute, str]],
        publish: Callable[[SegmentPayload], int],
    ) -> None:
        self._channel = channel
        self._load = load
        self._publish = publish
        self._inbox = Inbox(channel)
        self._prefixes: dict[str, SegmentPayload] = {}
        self._device = "cpu"
        self._job_id = -1

    def run(self) -> None:
        """Serve until the pool ends; does not return before."""
        message, _ = self._inbox.next()
        spec = WorkerSpec(**message["spec"])
        try:
            compute, self._device = self._load(spec, self._check)
        except Exception as error:  # noqa: BLE001  the pool must hear why, whatever it is
            self._channel.send({"op": "refused", "problem": _words(error)})
            return
        self._channel.send({"op": "ready"})
        while True:
            message, file = self._inbox.next()
            if message["op"] == "prefix":
                self._take_prefix(message, file)
            elif message["op"] == "build":
                self._job_id = int(message["id"])
                self._answer(compute, message, file)
                self._inbox.forget(self._job_id)

    def _check(self) -> None:
        if self._inbox.is_cancelled(self._job_id):
            raise Cancelled

    def _take_prefix(self, message: dict[str, Any], file: MemoryFile | None) -> None:
        from hypic_agents.runtime.workers.wire import load_payload

        self._prefixes = {name: held for name, held in self._prefixes.items() if name in message["keep"]}
        # A damaged one is missing when its job comes, which then fails by name.
        with contextlib.suppress(DamagedPayload):
            if file is not None:
                self._prefixes[message["name"]] = load_payload(file, self._device)

    def _answer(self, compute: Compute, message: dict[str, Any], file: MemoryFile | None) -> None:
        from hypic_agents.runtime.workers.wire import decode_job

        reply: dict[str, Any] = {"id": self._job_id}
        made: int | None = None
        try:
            job = decode_job(bytearray() if file is None else file.read(), self._prefixes.get(message["prefix"]))
            payload, seconds = compute(job)
            self._check()
            made = self._publish(payload)
            reply |= {"op": "built", "seconds": seconds}
        except Cancelled:
            reply |= {"op": "dropped"}
        except Exception as error:  # noqa: BLE001  one job's failure must not end the worker
            reply |= {"op": "failed", "problem": _words(error)}
        self._channel.send(reply, made)
        if made is not None:
            os.close(made)


def load_compute(spec: WorkerSpec, check: Callable[[], None]) -> tuple[Compute, str]:
    """What computes jobs on the model of ``spec``, and the device; ``check`` is called before every layer."""
    from hypic_agents.runtime.workers.compute import compute, load_worker_model

    model = load_worker_model(spec)
    for layer in model.hf.model.layers:
        layer.register_forward_pre_hook(lambda *_: check())

    def one(job: BuildJob) -> tuple[SegmentPayload, float]:
        payloads, seconds = compute(model, [job])
        return payloads[0], seconds

    return one, str(model.device)


def publish_payload(payload: SegmentPayload) -> int:
    from hypic_agents.runtime.workers.memory_file import write_file
    from hypic_agents.runtime.workers.wire import encode_payload

    return write_file(encode_payload(payload, shared=True))


def open_channel(fd: int) -> Channel:
    """The worker's end. Ctrl-C in a terminal reaches every process there; what it means is the pool's to say."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Channel(socket.socket(fileno=fd))


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


if __name__ == "__main__":
    with contextlib.suppress(ChannelClosed):
        Worker(open_channel(int(sys.argv[1])), load_compute, publish_payload).run()
