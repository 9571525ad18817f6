"""Memory over disk, as one segment store. No torch.

Every entry that memory is offered is also written to the disk, behind the request's back; one that memory lacks is
looked for there and comes back into memory. So what memory evicts needs no writing any more. Invalidations go through
the disk tier's log, which all processes that share the directory follow.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

from hypic_agents.errors import StoreUnavailable
from hypic_agents.runtime.cache.base import OneByOne, StoreStats
from hypic_agents.runtime.cache.connection import LOG
from hypic_agents.runtime.cache.disk import DiskTier
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.folder import Position
from hypic_agents.runtime.cache.invalidation import Invalidation, Sourced, VersionOrder
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.memory import MemoryStore
from hypic_agents.runtime.cache.record import entry_name
from hypic_agents.runtime.cache.writer import WriteBehind, WriteJob


class TieredStore(OneByOne):
    """A :class:`~hypic_agents.runtime.cache.base.SegmentStore` over two tiers, which it owns.

    A disk that fails makes misses and warnings, never a failed request. Only :meth:`invalidate` raises then: what must
    not be served any more could otherwise come back from the disk.

    Args:
        memory: The upper tier.
        disk: The lower one.
        version_order: The one that both tiers were given.
        max_pending_bytes: Most payload bytes that wait to be written; what comes on top is not written.
    """

    def __init__(
        self,
        memory: MemoryStore,
        disk: DiskTier,
        *,
        version_order: VersionOrder = str,
        max_pending_bytes: int = 256 << 20,
    ) -> None:
        self._memory = memory
        self._disk = disk
        self._version_order = version_order
        self._lock = Lock()
        self._followed = disk.position
        self._disk_hits = 0
        self._writer = WriteBehind(disk, max_pending_bytes)
        self._closing = weakref.finalize(
            self, _close, self._writer, disk, os.getpid()
        )  # also when the interpreter ends

    @property
    def epoch(self) -> int:
        self._follow()
        return self._memory.epoch

    @property
    def version_order(self) -> VersionOrder:
        return self._version_order

    def acquire(self, key: SegmentKey, token_ids: Sequence[int]) -> SegmentEntry | None:
        self._follow()
        since, position = self._memory.epoch, self._followed  # before the look-up: an invalidation may follow on it
        entry = self._memory.acquire(key, token_ids)
        if entry is not None:
            if self._writer.is_deferred(key):
                self._write(entry, position)
            return entry
        entry = self._writer.find(key, token_ids) or self._disk.read(key, token_ids)
        if entry is None:
            return None
        # Invalidations may have come while the file was read: of this process, which memory knows, or of another.
        used = self._memory.insert(entry, pin=True, since=since)
        if self._followed != position or self._memory.overtaken(used, since):
            self._memory.release(used)
            return None
        with self._lock:
            self._disk_hits += 1
        return used

    def release(self, entry: SegmentEntry) -> None:
        self._memory.release(entry)

    def insert(self, entry: SegmentEntry, *, pin: bool = False, since: int | None = None) -> SegmentEntry:
        self._follow()
        position = self._followed
        used = self._memory.insert(entry, pin=pin, since=since)
        if used is entry and not self._memory.overtaken(entry, since):
            self._write(entry, position)
        return used

    def evict(self, num_bytes: int) -> int:
        return self._memory.evict(num_bytes)

    def invalidate(
        self,
        *,
        source_id: str | None = None,
        version_before: str | None = None,
        tenant: str | None = None,
        group: str | None = None,
    ) -> int:
        """See :class:`~hypic_agents.runtime.cache.base.SegmentStore`; covers the disk and the other processes too.

        Raises:
            StoreUnavailable: the disk could not be changed; nothing changed.
        """
        return self.withdraw(Invalidation(source_id, version_before, tenant, group))

    def withdraw(self, call: Invalidation | None) -> int:
        """:meth:`invalidate` for conditions at hand; without any, everything that is kept or being built.

        Raises:
            StoreUnavailable: the disk could not be changed; nothing changed.
        """
        held = self._memory.entries()
        gone = {entry_name(each.key) for each in held if call is None or call.covers(each, self._version_order)}
        gone |= self._disk.invalidate(call)
        if not self._follow():
            self._withdraw(call)  # once more as soon as the log can be read, which only costs builds
        return len(gone)

    def flush(self) -> None:
        self._writer.flush()
        try:
            self._disk.save_touches()
        except StoreUnavailable as error:
            LOG.warning("the last uses of segments are not written down: %s", error)

    def close(self) -> None:
        self._closing()

    def overtaken(self, entry: SegmentEntry, since: int | None) -> bool:
        """See :class:`MemoryStore`."""
        self._follow()
        return self._memory.overtaken(entry, since)

    def uses(self, key: SegmentKey) -> int:
        """See :class:`MemoryStore`."""
        return self._memory.uses(key)

    def check_integrity(self) -> None:
        self._memory.check_integrity()
        self._disk.check_integrity()
        held = self._disk.held_bytes()
        if held > self._disk.budget_bytes:
            raise AssertionError(f"the disk tier holds {held} bytes of {self._disk.budget_bytes}")

    def stats(self) -> StoreStats:
        stats = self._memory.stats()
        with self._lock:
            disk_hits = self._disk_hits
        try:
            entries, held = self._disk.num_entries(), self._disk.held_bytes()
        except StoreUnavailable as error:
            LOG.warning("what lies on the disk is not known now: %s", error)
            entries = held = 0
        return replace(
            stats,
            hits=stats.hits + disk_hits,
            misses=stats.misses - disk_hits,
            disk_hits=disk_hits,
            disk_entries=entries,
            disk_bytes=held,
            disk_budget_bytes=self._disk.budget_bytes,
            disk_pending_bytes=self._writer.pending_bytes,
            disk_dropped=self._writer.dropped,
            damaged=self._disk.damaged,
        )

    def _write(self, entry: SegmentEntry, position: Position) -> None:
        self._writer.put(WriteJob(entry, position, self._memory.uses(entry.key)))

    def _follow(self) -> bool:
        """Apply to memory what was invalidated since, by this process or another; False if that is not known now."""
        try:
            if self._disk.position == self._followed:
                return True
            with self._lock:
                position = self._disk.position
                calls = self._disk.later(self._followed)
                for call in [None] if calls is None else calls:  # what is no longer known may be anything
                    self._withdraw(call)
                self._followed = position
        except StoreUnavailable as error:
            LOG.warning("what other processes invalidated is not known now: %s", error)
            return False
        return True

    def _withdraw(self, call: Invalidation | None) -> None:
        def covered(entry: Sourced) -> bool:
            return call is None or call.covers(entry, self._version_order)

        try:
            self._writer.cancel(covered)
            self._memory.withdraw(call)
        except Exception:  # noqa: BLE001  the version order is the user's, the versions another process's
            LOG.exception("an invalidation of another process cannot be compared; everything in memory is dropped")
            self._writer.cancel(lambda _: True)
            self._memory.withdraw(None)


def _close(writer: WriteBehind[Position], disk: DiskTier, pid: int) -> None:
    if os.getpid() == pid:  # a forked child has neither the thread nor a connection of its own
        writer.close()
        disk.close()
