"""A worker's second thread: it writes payloads down and sends them while the next build runs. No torch.

On a GPU a payload may take as long to copy out and write down as a build takes, so neither waits for the other. At most
one payload is under way: a worker that computes faster than it can write must not pile them up.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hypic_agents.runtime.workers.channel import Channel, ChannelClosed
from hypic_agents.runtime.workers.inbox import Inbox

if TYPE_CHECKING:
    from hypic_agents.runtime.state import SegmentPayload


class Publisher:
    """Tells the pool what became of jobs.

    Args:
        channel: To the pool.
        publish: Writes a payload to a file; returns its descriptor.
        inbox: Knows which jobs are wanted no more.
    """

    def __init__(
        self,
        channel: Channel,
        publish: Callable[[SegmentPayload], int],
        inbox: Inbox,
    ) -> None:
        self._channel = channel
        self._publish = publish
        self._inbox = inbox
        self._free = threading.Semaphore()
        self._made: queue.SimpleQueue[tuple[int, SegmentPayload, float]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="hypic publisher", daemon=True).start()

    def hand_over(self, job_id: int, payload: SegmentPayload, seconds: float) -> None:
        """Say that a job is computed, and send its payload from the other thread; waits for the payload before it."""
        self._free.acquire()
        self._channel.send({"op": "computed", "id": job_id})
        self._made.put((job_id, payload, seconds))

    def drop(self, job_id: int) -> None:
        """Say that a job was given up."""
        self._answer(job_id, {"op": "dropped"})

    def fail(self, job_id: int, error: BaseException) -> None:
        """Say why a job cannot be computed."""
        self._answer(job_id, {"op": "failed", "problem": in_words(error)})

    def _run(self) -> None:
        with contextlib.suppress(ChannelClosed):  # whoever reads the channel ends the process
            while True:
                self._send(*self._made.get())
                self._free.release()

    def _send(self, job_id: int, payload: SegmentPayload, seconds: float) -> None:
        if self._inbox.is_cancelled(job_id):
            self.drop(job_id)
            return
        try:
            fd = self._publish(payload)
        except Exception as error:  # noqa: BLE001  one job's failure must not end the worker
            self.fail(job_id, error)
            return
        try:
            self._answer(job_id, {"op": "built", "seconds": seconds}, fd)
        finally:
            os.close(fd)

    def _answer(self, job_id: int, reply: dict[str, Any], fd: int | None = None) -> None:
        self._channel.send(reply | {"id": job_id}, fd)
        self._inbox.forget(job_id)


def in_words(error: BaseException) -> str:
    """An error on one line of bearable length."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
