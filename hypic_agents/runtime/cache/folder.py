"""A directory of segment files and its index: what may be done with it without looking into payloads. No torch.

::

    store/index.sqlite            who is where; made anew from the files if it is damaged
    store/segments/NAME.safetensors   one entry each, see container.py
    store/segments/*.draft        being written, locked by the writer

Several processes may use one directory. Every change is one transaction of the index, and files are renamed and
deleted inside it, so that a process sees either all of a change or none, and a crash leaves at most an orphan, which
the next process to open the directory removes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from hypic_agents.errors import InvalidInput, StoreUnavailable
from hypic_agents.runtime.cache.connection import LOG, Connection
from hypic_agents.runtime.cache.container import DamagedFile, parse
from hypic_agents.runtime.cache.files import SegmentFiles
from hypic_agents.runtime.cache.index import Index
from hypic_agents.runtime.cache.invalidation import Invalidation, Sourced, VersionOrder
from hypic_agents.runtime.cache.record import EntryInfo, entry_name, info_of_file
from hypic_agents.runtime.cache.rows import Departure, IndexRow

Position = tuple[int, int]
"""A place in the log of invalidations: which index, and how many it held."""


class StoreFolder:
    """Lists, invalidates, verifies and evicts the files of one directory. Safe to use from several threads.

    Args:
        root: The directory; made if it is not there.
        version_order: Sort key of a version, as in :class:`MemoryStore`.
        durable: Wait for the disk at every change. Without it, a loss of power (not of the process) may lose entries;
            it cannot damage others.

    Raises:
        StoreUnavailable: the directory cannot be used.
    """

    def __init__(self, root: Path | str, *, version_order: VersionOrder = str, durable: bool = True) -> None:
        self.root = Path(root)
        self._version_order = version_order
        self.damaged = 0
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._files = SegmentFiles(self.root / "segments", durable=durable)
            self._changes = Connection(self.root / "index.sqlite", self._adopt)
            self._changes.do(self._clean)
            self._questions = Connection(self.root / "index.sqlite", self._adopt)
        except OSError as error:
            raise StoreUnavailable(f"cannot use {self.root} as a store: {error.strerror or error}") from error

    @property
    def position(self) -> Position:
        """Where the log of invalidations ends now; read it before a build, and hand it to :meth:`later`."""
        return self._questions.do(lambda index: (index.generation, index.last_seq()))

    def later(self, position: Position) -> list[Invalidation] | None:
        """Invalidations behind ``position``, of any process; None if they are no longer all known."""
        return self._questions.do(lambda index: _later(index, position))

    def rows(self) -> list[IndexRow]:
        """All files, the first to leave first."""
        return [row for row in self._questions.do(Index.rows) if not row.draft]

    def departures(self) -> list[Departure]:
        """What left and why, latest first, as far as it is remembered."""
        return self._questions.do(Index.departures)

    def held_bytes(self) -> int:
        """Bytes of all files, those being written included."""
        return self._questions.do(Index.held_bytes)

    def num_entries(self) -> int:
        return self._questions.do(Index.num_entries)

    def invalidate(self, call: Invalidation | None) -> set[str]:
        """Delete every file that ``call`` covers, or all; returns their names. No process finds them afterwards.

        Raises:
            StoreUnavailable: the directory could not be changed; nothing changed.
        """
        return self._changes.do(lambda index: self._invalidate(index, call))

    def remove(self, names: set[str], reason: str) -> None:
        """Delete files by name, as far as they are there."""

        def remove(index: Index) -> None:
            with index.change():
                for row in filter(None, map(index.find, names)):
                    self._drop(index, row, reason)

        self._changes.do(remove)

    def verify(self, *, remove: bool = False) -> Iterator[tuple[IndexRow, str]]:
        """Read every file; yields it and what is wrong with it, which is mostly nothing.

        Args:
            remove: Delete what is damaged.
        """
        for row in self.rows():
            problem = self._problem(row)
            if problem and remove:
                self.remove({row.name}, "damaged")
            yield row, problem

    def check_integrity(self) -> None:
        """Compare index and files.

        Raises:
            AssertionError: a published row whose file is missing or of another size, or a file without a row.
        """

        def check(index: Index) -> tuple[list[str], set[str]]:
            with index.change():
                rows = [row for row in index.rows() if not row.draft]
                wrong = [row.name for row in rows if self._files.size(row.name) != row.file_bytes or row.info is None]
                return wrong, set(self._files.names()) - {row.name for row in rows}

        wrong, orphans = self._changes.do(check)
        if wrong or orphans:
            raise AssertionError(f"the store's folder broke: rows without their file {wrong}, orphans {orphans}")

    def close(self) -> None:
        self._questions.close()
        self._changes.close()

    def _adopt(self, index: Index) -> None:
        """Give every file its row. Only headers are read; a hit reads and checks the whole file."""
        now = time.time()
        for name in set(self._files.names()) - {row.name for row in index.rows()}:
            try:
                info = info_of_file(self._files.read_head(name))
                if entry_name(info.key) != name:
                    raise DamagedFile("it stands under another name")  # noqa: TRY301
            except (DamagedFile, OSError) as problem:
                self._report(name, problem)
                self._files.delete(name)
                continue
            index.put(IndexRow(name, "", self._files.size(name), info, 1, 0.0, now, now))

    def _clean(self, index: Index) -> None:
        """Remove what a crash left behind, and rows that are not true."""
        with index.change():
            self._sweep(index)
            for draft in set(self._files.drafts()) - {row.draft for row in index.drafts()}:
                if self._files.is_abandoned(draft):
                    self._files.delete_draft(draft)
            known = set()
            for row in index.rows():
                known.add(row.name)
                size = self._files.size(row.name)
                if not row.draft and size < 0:  # the crash came while it was being evicted or invalidated
                    self._drop(index, row, "missing")
                elif not row.draft and (row.info is None or size != row.file_bytes):
                    self._report(row.name, "its size or its row in the index is wrong")
                    self._drop(index, row, "damaged")
            for name in set(self._files.names()) - known:
                self._files.delete(name)

    def _sweep(self, index: Index) -> None:
        """Forget drafts whose writer is gone. Publishing is one transaction, so none is half published here."""
        for row in index.drafts():
            if row.info is None:
                self._drop(index, row, "damaged")
            elif self._files.is_abandoned(row.draft):
                self._files.delete_draft(row.draft)
                self._drop(index, row, "")

    def _invalidate(self, index: Index, call: Invalidation | None) -> set[str]:
        with index.change():
            self._sweep(index)
            # A row whose checksum is wrong might be of that source: it goes too.
            rows = [
                row
                for row in index.rows()
                if not row.draft and (call is None or row.info is None or call.covers(row.info, self._version_order))
            ]
            index.log(call)
            for row in rows:
                self._drop(index, row, "invalidated")
            self._files.sync()
        return {row.name for row in rows}

    def _overtaken(self, index: Index, entry: Sourced, position: Position) -> bool:
        later = _later(index, position)
        return later is None or any(call.covers(entry, self._version_order) for call in later)

    def _drop(self, index: Index, row: IndexRow, reason: str) -> None:
        self._files.delete(row.name)
        index.remove(row, reason)

    def _problem(self, row: IndexRow) -> str:
        try:
            raw = self._files.read(row.name)
            parse(raw)
            info: EntryInfo = info_of_file(bytes(raw))
        except (OSError, DamagedFile) as error:
            return str(error)
        return "" if entry_name(info.key) == row.name else "it stands under another name"

    def _report(self, name: str, problem: object) -> None:
        self.damaged += 1
        LOG.warning("segment file %s in %s is damaged and dropped: %s", name, self.root, problem)


def _later(index: Index, position: Position) -> list[Invalidation] | None:
    generation, seq = position
    return index.invalidations_after(seq) if generation == index.generation else None


def open_folder(root: Path | str) -> StoreFolder:
    """The store in an existing directory.

    Raises:
        InvalidInput: there is none.
    """
    if not (Path(root) / "index.sqlite").is_file():
        raise InvalidInput(
            f"no store in {root}: give the directory that EngineConfig(store_dir=...) names, or fill one with "
            f"hypic-agents cache warm -s {root} --doc FILE"
        )
    return StoreFolder(root)
