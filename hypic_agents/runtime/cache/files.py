"""Files of the disk tier: written whole or not at all, readable by their owner only. POSIX.

A file is written under a draft name, synced, and renamed. While it is written, its draft is locked with ``flock``: the
kernel lets go of the lock when the writer dies, however it dies, so a draft without a lock is an orphan.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from hypic_agents.runtime.cache.container import Buffer, header_end

_SUFFIX = ".safetensors"
_DRAFT = ".draft"


class Draft:
    """A file being written. Leaving the context without :meth:`publish` deletes it."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self.name = uuid4().hex + _DRAFT
        self._folder = folder
        self._durable = durable
        self._path: Path | None = folder / self.name
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, pieces: Iterable[Buffer]) -> None:
        """Write all of it.

        Raises:
            OSError: the disk is full or failed.
        """
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(self._fd, view) :]
        if self._durable:
            os.fsync(self._fd)

    def publish(self, name: str) -> None:
        """Give the file its name, replacing one of that name."""
        assert self._path is not None, "published twice"
        self._path.rename(self._folder / (name + _SUFFIX))
        self._path = None
        if self._durable:
            sync_folder(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        os.close(self._fd)


class SegmentFiles:
    """The segment files of one folder, by name without ending."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._durable = durable

    def draft(self) -> Draft:
        return Draft(self._folder, durable=self._durable)

    def is_abandoned(self, draft_name: str) -> bool:
        """Whether nobody writes that draft any more: it is gone, or its writer is."""
        try:
            fd = os.open(self._folder / draft_name, os.O_RDONLY)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def read(self, name: str) -> bytearray:
        """A whole file.

        Raises:
            OSError: it is not there, or cannot be read.
        """
        with self._path(name).open("rb", buffering=0) as file:
            raw = bytearray(os.fstat(file.fileno()).st_size)
            view, at = memoryview(raw), 0
            while at < len(raw):
                count = file.readinto(view[at:])
                if not count:
                    break
                at += count
        return raw

    def read_head(self, name: str) -> bytes:
        """A file's header, with the 8 bytes before it; less if the file is shorter."""
        with self._path(name).open("rb") as file:
            first = file.read(8)
            end = min(header_end(first), os.fstat(file.fileno()).st_size)
            return first + file.read(max(0, end - 8))

    def size(self, name: str) -> int:
        """Size in bytes; -1 if it is not there."""
        try:
            return self._path(name).stat().st_size
        except FileNotFoundError:
            return -1

    def delete(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def delete_draft(self, draft_name: str) -> None:
        (self._folder / draft_name).unlink(missing_ok=True)

    def sync(self) -> None:
        """Make deletions outlast a loss of power."""
        if self._durable:
            sync_folder(self._folder)

    def names(self) -> Iterator[str]:
        """Names of all published files."""
        return (path.name.removesuffix(_SUFFIX) for path in self._folder.glob("*" + _SUFFIX))

    def drafts(self) -> Iterator[str]:
        """Names of all drafts."""
        return (path.name for path in self._folder.glob("*" + _DRAFT))

    def _path(self, name: str) -> Path:
        return self._folder / (name + _SUFFIX)


def sync_folder(folder: Path) -> None:
    """Make renames and deletions in a folder outlast a loss of power."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
