"""A worker process: loads the model, then computes one job after another for the pool that started it.

``python -m hypic_agents.runtime.workers.serve FD``: FD is the worker's end of a socket pair. There is no other way in.
It ends with the pool's process: a thread reads the socket all the time and sees its end even during a pass.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from hypic_agents.runtime.workers.channel import Channel, ChannelClosed
from hypic_agents.runtime.workers.contract import BuildJob, DamagedPayload, WorkerSpec
from hypic_agents.runtime.workers.inbox import Inbox
from hypic_agents.runtime.workers.publisher import Publisher, in_words

if TYPE_CHECKING:
    from hypic_agents.runtime.state import SegmentPayload
    from hypic_agents.runtime.workers.memory_file import MemoryFile

Compute: TypeAlias = "Callable[[BuildJob], tuple[SegmentPayload, float]]"


class Cancelled(Exception):
    """The job that is being computed is not wanted any more."""


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
        self._inbox = Inbox(channel)
        self._publisher = Publisher(channel, publish, self._inbox)
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
            self._channel.send({"op": "refused", "problem": in_words(error)})
            return
        self._channel.send({"op": "ready"})
        while True:
            message, file = self._inbox.next()
            if message["op"] == "prefix":
                self._take_prefix(message, file)
            elif message["op"] == "build":
                self._job_id = int(message["id"])
                self._answer(compute, message, file)

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

        try:
            job = decode_job(bytearray() if file is None else file.read(), self._prefixes.get(message["prefix"]))
            payload, seconds = compute(job)
        except Cancelled:
            self._publisher.drop(self._job_id)
        except Exception as error:  # noqa: BLE001  one job's failure must not end the worker
            self._publisher.fail(self._job_id, error)
        else:
            self._publisher.hand_over(self._job_id, payload, seconds)


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
    """Descriptor of a file with the payload; a GPU copies it out beside what it computes."""
    import torch

    from hypic_agents.runtime.workers.memory_file import write_file
    from hypic_agents.runtime.workers.wire import encode_payload

    device = next(payload.layers[0].tensors()).device
    with torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else contextlib.nullcontext():
        return write_file(encode_payload(payload, shared=True))


def open_channel(fd: int) -> Channel:
    """The worker's end. Ctrl-C in a terminal reaches every process there; what it means is the pool's to say."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Channel(socket.socket(fileno=fd))


if __name__ == "__main__":
    with contextlib.suppress(ChannelClosed):
        Worker(open_channel(int(sys.argv[1])), load_compute, publish_payload).run()
