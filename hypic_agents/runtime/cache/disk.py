"""The disk tier: entries that outlive the process, within a budget that several processes keep together. No torch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Literal

from hypic_agents.errors import InvalidInput, StoreUnavailable
from hypic_agents.runtime.cache.admission import Admission
from hypic_agents.runtime.cache.connection import LOG
from hypic_agents.runtime.cache.container import DamagedFile, Layout
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.eviction import GDSF, Eviction, Worth
from hypic_agents.runtime.cache.files import Draft
from hypic_agents.runtime.cache.folder import Position, StoreFolder
from hypic_agents.runtime.cache.index import Index
from hypic_agents.runtime.cache.invalidation import VersionOrder
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.record import EntryInfo, PayloadCodec, entry_name, from_file, to_file
from hypic_agents.runtime.cache.rows import IndexRow

Outcome = Literal["written", "present", "overtaken", "deferred", "refused", "failed"]


class DiskTier(StoreFolder):
    """Reads and writes entries; see :class:`StoreFolder` for everything else.

    Args:
        root: The directory.
        budget_bytes: Limit of all segment files together, those being written included. The index comes on top.
        codec: Turns payloads into tensors and back.
        eviction: What leaves first.
        admission: What is written; by default what is seen a second time, once something would have to leave for it.
        version_order, durable: See :class:`StoreFolder`.

    Raises:
        InvalidInput: a negative budget.
        StoreUnavailable: the directory cannot be used.
    """

    def __init__(
        self,
        root: Path | str,
        budget_bytes: int,
        codec: PayloadCodec,
        *,
        eviction: Eviction = GDSF(),  # noqa: B008  (frozen)
        admission: Admission = Admission(second_touch=True),  # noqa: B008  (frozen)
        version_order: VersionOrder = str,
        durable: bool = True,
    ) -> None:
        if budget_bytes < 0:
            raise InvalidInput(f"budget_bytes={budget_bytes}: use 0 or more")
        self.budget_bytes = budget_bytes
        self._codec = codec
        self._eviction = eviction
        self._admission = admission
        self._touching = Lock()
        self._touches: Counter[str] = Counter()
        super().__init__(root, version_order=version_order, durable=durable)
        self._changes.do(self._fit)

    def contains(self, key: SegmentKey) -> bool:
        row = self._questions.do(lambda index: index.find(entry_name(key)))
        return row is not None and not row.draft

    def read(self, key: SegmentKey, token_ids: Sequence[int]) -> SegmentEntry | None:
        """The entry of ``key`` whose ids are ``token_ids``; None if there is none, or none that is whole."""
        name = entry_name(key)
        try:
            row = self._questions.do(lambda index: index.find(name))
            if row is None or row.draft:
                return None
            return self._read(row, key, tuple(token_ids))
        except StoreUnavailable as error:
            LOG.warning("a segment is looked for in memory only: %s", error)
            return None

    def _read(self, row: IndexRow, key: SegmentKey, token_ids: tuple[int, ...]) -> SegmentEntry | None:
        try:
            entry, _ = from_file(self._files.read(row.name), self._codec)
        except FileNotFoundError:  # evicted since, or taken away by somebody
            if self._questions.do(lambda index: index.find(row.name)) is not None:
                self.remove({row.name}, "missing")
            return None
        except (DamagedFile, OSError) as problem:
            self._report(row.name, problem)
            self.remove({row.name}, "damaged")
            return None
        if entry.key != key or entry.token_ids != token_ids:
            return None
        with self._touching:
            self._touches[row.name] += 1
        return entry

    def write(self, entry: SegmentEntry, position: Position, *, uses: int = 1) -> Outcome:
        """Write an entry unless it is there. A full or failing disk is reported and changes nothing.

        Args:
            entry: What to write.
            position: Where the log of invalidations ended when the entry was known to be valid.
            uses: How often it was wanted so far.

        Returns:
            "written"; "present" (also if another process is writing it); "overtaken" by an invalidation; "deferred" by
            the admission until it is seen again; "refused", because it can never fit or something else stands in its
            place; "failed".
        """
        try:
            info, layout = to_file(entry, self._codec)
            with ExitStack() as stack:
                got = self._changes.do(lambda index: self._reserve(index, entry, info, layout, position, uses, stack))
                if not isinstance(got, tuple):
                    return got
                row, draft = got
                try:
                    draft.write(layout.pieces())
                    return self._changes.do(lambda index: self._publish(index, row, draft, position))
                except BaseException:
                    self._changes.do(lambda index: self._forget(index, row))
                    raise
        except (OSError, StoreUnavailable) as error:
            LOG.warning("segment %s is not written to %s: %s", entry_name(entry.key), self.root, error)
            return "failed"

    def evict(self, num_bytes: int) -> int:
        """Delete files until ``num_bytes`` are freed or none is left; returns the bytes freed."""
        return self._changes.do(lambda index: self._evict(index, num_bytes))

    def save_touches(self) -> None:
        """Write down which entries were used, for eviction and for other processes."""
        if self._touches:
            self._changes.do(self._save_touches)

    def close(self) -> None:
        try:
            self.save_touches()
        except StoreUnavailable as error:
            LOG.warning("the last uses of segments are not written down: %s", error)
        super().close()

    def _reserve(
        self,
        index: Index,
        entry: SegmentEntry,
        info: EntryInfo,
        layout: Layout,
        position: Position,
        uses: int,
        stack: ExitStack,
    ) -> tuple[IndexRow, Draft] | Outcome:
        """Take the room for a file before it is written, so that the budget holds while it is."""
        name = entry_name(entry.key)
        with index.change():
            if self._overtaken(index, entry, position):
                return "overtaken"
            self._sweep(index)
            if index.find(name) is not None:
                return "present"
            needed = index.held_bytes() + layout.num_bytes - self.budget_bytes
            refusal = self._admission.refusal(
                num_tokens=entry.key.num_tokens,
                nbytes=layout.num_bytes,
                budget_bytes=self.budget_bytes,
                seen=uses > 1 or entry.key.is_prefix,
                must_evict=needed > 0,
            )
            if refusal or not self._make_room(index, needed):
                return "deferred" if self._admission.second_touch and uses <= 1 else "refused"
            draft = stack.enter_context(self._files.draft())
            clock, priority = self._eviction.touched(index.clock, _worth(uses, layout.num_bytes, info))
            index.clock = clock
            now = time.time()
            row = IndexRow(name, draft.name, layout.num_bytes, info, uses, priority, now, now)
            index.put(row)
        return row, draft

    def _publish(self, index: Index, row: IndexRow, draft: Draft, position: Position) -> Outcome:
        with index.change():
            assert row.info is not None
            if index.find(row.name) != row:  # the index was made anew meanwhile
                return "failed"
            if self._overtaken(index, row.info, position):
                index.remove(row, "")
                return "overtaken"
            index.put(replace(row, draft=""))
            draft.publish(row.name)
        return "written"

    def _forget(self, index: Index, row: IndexRow) -> None:
        with index.change():
            if index.find(row.name) == row:
                self._drop(index, row, "")

    def _fit(self, index: Index) -> None:
        """Keep the budget that this process was given."""
        with index.change():
            self._make_room(index, index.held_bytes() - self.budget_bytes)

    def _evict(self, index: Index, num_bytes: int) -> int:
        with index.change():
            victims = index.first_to_leave(num_bytes)
            self._let_go(index, victims)
        return sum(row.file_bytes for row in victims)

    def _make_room(self, index: Index, num_bytes: int) -> bool:
        """Evict so that ``num_bytes`` are freed, or nothing if that is not possible."""
        if num_bytes <= 0:
            return True
        self._apply_touches(index)
        victims = index.first_to_leave(num_bytes)
        if sum(row.file_bytes for row in victims) < num_bytes:
            return False
        self._let_go(index, victims)
        return True

    def _let_go(self, index: Index, victims: list[IndexRow]) -> None:
        clock = index.clock
        for row in victims:
            clock = self._eviction.evicted(clock, row.priority)
            self._drop(index, row, "evicted")
        index.clock = clock

    def _save_touches(self, index: Index) -> None:
        with index.change():
            self._apply_touches(index)

    def _apply_touches(self, index: Index) -> None:
        with self._touching:
            touches, self._touches = self._touches, Counter()
        clock = index.clock
        for name, count in touches.items():
            row = index.find(name)
            if row is None or row.draft or row.info is None:
                continue
            uses = row.uses + count
            clock, priority = self._eviction.touched(clock, _worth(uses, row.file_bytes, row.info))
            index.put(replace(row, uses=uses, priority=priority, used=time.time()))
        index.clock = clock


def _worth(uses: int, file_bytes: int, info: EntryInfo) -> Worth:
    return Worth.of(uses, info.build_s, info.key.num_tokens, file_bytes)
