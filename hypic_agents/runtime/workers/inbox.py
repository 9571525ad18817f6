"""A worker's ear: a thread that reads what the pool sends, and ends the process with the pool's. No torch."""

from __future__ import annotations

import os
import queue
import select
import threading
from typing import Any, TypeAlias

from hypic_agents.runtime.workers.channel import Channel, ChannelClosed
from hypic_agents.runtime.workers.memory_file import MemoryFile

Message: TypeAlias = "tuple[dict[str, Any], MemoryFile | None]"
_CHECK_PARENT_S = 2.0


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
