"""Files without a name, in memory: how tensors pass between processes.

A descriptor is all there is to such a file, so nothing has to be unlinked: when the last process that holds one ends,
whatever ended it, the memory is free. Nobody else can open it.
"""

from __future__ import annotations

import os
import tempfile

from hypic_agents.runtime.cache.container import Layout
from hypic_agents.runtime.workers.contract import DamagedPayload


def write_file(layout: Layout) -> int:
    """Descriptor of a new file with these contents; the caller closes it."""
    fd = _anonymous()
    try:
        for piece in layout.pieces():
            view = memoryview(piece).cast("B")
            while len(view):
                view = view[os.write(fd, view) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


class MemoryFile:
    """Owns a descriptor that came from another process: it is closed with its object, read or not."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self) -> bytearray:
        """A copy of the contents, which the writer cannot change any more; closes the file.

        Raises:
            DamagedPayload: the file shrinks while it is read, or cannot be read.
        """
        try:
            raw = bytearray(os.fstat(self._fd).st_size)
            view, at = memoryview(raw), 0
            while at < len(raw) and (count := os.preadv(self._fd, [view[at:]], at)):
                at += count
        except OSError as error:
            raise DamagedPayload(f"a file that cannot be read: {error}") from error
        finally:
            self.close()
        if at < len(raw):
            raise DamagedPayload(f"a file that ends after {at} of {len(raw)} bytes")
        return raw

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


def _anonymous() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("hypic", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # unlinked at once, mode 0600
        return os.dup(file.fileno())
