"""Messages between a pool and one worker: JSON behind its length, over a socket pair that the worker inherits.

A message may carry one descriptor (a file of tensors). Nothing that arrives is executed or unpickled.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from typing import Any

from hypic_agents.runtime.workers.memory_file import MemoryFile

MOST_BYTES = 1 << 16
_MOST_FDS = 16
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class ChannelClosed(Exception):
    """The other side is gone, does not take messages any more, or sends what is none."""


class Channel:
    """One end. Several threads may send, and one receive."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()
        self._data = bytearray()
        self._files: deque[MemoryFile] = deque()

    def fileno(self) -> int:
        """The socket's descriptor; -1 once closed."""
        return self._socket.fileno()

    def send(self, message: dict[str, Any], fd: int | None = None) -> None:
        """Send a message, all of it or not at all.

        Raises:
            ChannelClosed: the other side is gone, or has left too much unread for a socket that does not block.
        """
        body = json.dumps(message | {"has_file": fd is not None}).encode()
        assert len(body) <= MOST_BYTES, "large contents travel in files"
        frame = struct.pack("<I", len(body)) + body
        try:
            with self._sending:
                sent = socket.send_fds(self._socket, [frame], [] if fd is None else [fd])
                if sent < len(frame):
                    self._socket.sendall(frame[sent:])
        except OSError as error:
            raise ChannelClosed(f"the message could not be sent: {error}") from error

    def receive(self) -> list[tuple[dict[str, Any], MemoryFile | None]]:
        """Whole messages that one read brings, with their descriptors; empty if there is nothing to read yet.

        Raises:
            ChannelClosed: end of file, or a frame that is no message.
        """
        try:
            data, fds, flags, _ = socket.recv_fds(self._socket, MOST_BYTES, _MOST_FDS, _CLOEXEC)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChannelClosed(f"nothing can be received: {error}") from error
        self._files.extend(map(MemoryFile, fds))
        if not data or flags & socket.MSG_CTRUNC:
            raise ChannelClosed("the other side has ended")
        self._data += data
        messages = []
        while (message := self._next()) is not None:
            messages.append((message, self._files.popleft() if message.get("has_file") and self._files else None))
        return messages

    def close(self) -> None:
        """Let go of the socket and of files that nobody took."""
        self._socket.close()
        self._files.clear()

    def _next(self) -> dict[str, Any] | None:
        if len(self._data) < 4:
            return None
        (size,) = struct.unpack_from("<I", self._data)
        if size > MOST_BYTES:
            raise ChannelClosed(f"a message of {size} bytes")
        if len(self._data) < 4 + size:
            return None
        body = bytes(self._data[4 : 4 + size])
        del self._data[: 4 + size]
        try:
            message = json.loads(body)
        except ValueError as error:
            raise ChannelClosed("a message that is no JSON") from error
        if not isinstance(message, dict):
            raise ChannelClosed("a message that is no JSON object")
        return message
