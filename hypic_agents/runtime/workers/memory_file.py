"""Files without a name, in memory: how tensors pass between processes.

A descriptor is all there is to such a file, so nothing has to be unlinked: when the last process that holds one ends,
whatever ended it, the memory is free. Nobody else can open it.

On Linux a written file is sealed: nobody can change it any more, so its reader may map it instead of copying it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
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
        _seal(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


class MemoryFile:
    """Owns a descriptor that came from another process: it is closed with its object, read or not."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def size(self) -> int:
        """Bytes of the contents."""
        return os.fstat(self._fd).st_size

    @property
    def is_sealed(self) -> bool:
        """Whether nobody can change it any more."""
        return _is_sealed(self._fd)

    @property
    def path(self) -> str:
        """Where this process, and nobody else, may open it, as long as it is not closed. Linux only."""
        return f"/proc/self/fd/{self._fd}"

    def read(self) -> bytearray:
        """A copy of the contents, which the writer cannot change any more; closes the file.

        Raises:
            DamagedPayload: the file shrinks while it is read, or cannot be read.
        """
        try:
            raw = bytearray(self.size)
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
        return os.memfd_create("hypic", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:  # unlinked at once, mode 0600
        return os.dup(file.fileno())


def _seal(fd: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # it is copied then
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _seals())


def _is_sealed(fd: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _seals() == _seals()
    except (OSError, ValueError):  # no such kind of file, or a closed one
        return False


def _seals() -> int:
    assert sys.platform == "linux"
    return fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
