"""The segment store in memory: one lock, a byte budget, a rule for what leaves first. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.admission import Admission, TouchHistory
from hypic_agents.runtime.cache.base import OneByOne, StoreStats
from hypic_agents.runtime.cache.entry import SegmentEntry, Slot
from hypic_agents.runtime.cache.eviction import LRU, Eviction, EvictionQueue
from hypic_agents.runtime.cache.invalidation import Invalidation, InvalidationLog, VersionOrder
from hypic_agents.runtime.cache.key import SegmentKey


class MemoryStore(OneByOne):
    """A :class:`~hypic_agents.runtime.cache.base.SegmentStore`; every verb but ``invalidate`` is O(log n) an entry.

    A touch is a hit or an insert. Recency is the order of last releases: an entry in use is the most recent of all.

    Args:
        budget_bytes: Limit of ``held_bytes``; 0 keeps nothing but empty payloads.
        version_order: Sort key of a version, for ``version_before``; by default the string itself.
        eviction: What leaves first; by default the least recently used.
        admission: What is kept; by default whatever fits.

    Raises:
        InvalidInput: a negative budget.
    """

    def __init__(
        self,
        budget_bytes: int,
        *,
        version_order: VersionOrder = str,
        eviction: Eviction = LRU(),  # noqa: B008  (frozen)
        admission: Admission = Admission(),  # noqa: B008  (frozen)
    ) -> None:
        if budget_bytes < 0:
            raise InvalidInput(f"budget_bytes={budget_bytes}: use 0 or more")
        self._budget_bytes = budget_bytes
        self._version_order = version_order
        self._lock = Lock()
        self._kept: dict[SegmentKey, Slot] = {}
        self._idle: EvictionQueue[SegmentKey] = EvictionQueue(eviction)  # the unpinned part of _kept
        self._detached: dict[SegmentEntry, Slot] = {}  # withdrawn or lent, all pinned
        self._admission = admission
        self._history: TouchHistory[SegmentKey] = TouchHistory()
        self._log = InvalidationLog()
        self._held_bytes = self._idle_bytes = self._lent_bytes = 0
        self._hits = self._misses = self._inserts = self._evictions = self._invalidated = self._rejected = 0

    @property
    def epoch(self) -> int:
        with self._lock:
            return self._log.epoch

    @property
    def version_order(self) -> VersionOrder:
        return self._version_order

    def acquire(self, key: SegmentKey, token_ids: Sequence[int]) -> SegmentEntry | None:
        with self._lock:
            slot = self._kept.get(key)
            if slot is None or slot.entry.token_ids != tuple(token_ids):
                self._misses += 1
                return None
            self._hits += 1
            slot.uses = self._history.touch(key)
            self._pin(slot)
            return slot.entry

    def release(self, entry: SegmentEntry) -> None:
        with self._lock:
            slot = self._detached.get(entry) or self._kept.get(entry.key)
            if slot is None or slot.entry is not entry or slot.pins == 0:
                raise ValueError(f"released an entry that is not pinned: {entry.source_id!r}, key {entry.key}")
            slot.pins -= 1
            if slot.pins:
                return
            if entry not in self._detached:
                self._idle.touch(entry.key, slot.worth)
                self._idle_bytes += entry.nbytes
                return
            del self._detached[entry]
            if slot.lent:
                self._lent_bytes -= entry.nbytes
            else:
                self._held_bytes -= entry.nbytes

    def insert(self, entry: SegmentEntry, *, pin: bool = False, since: int | None = None) -> SegmentEntry:
        with self._lock:
            uses = self._history.touch(entry.key)
            present = self._kept.get(entry.key)
            if present is not None and present.entry.token_ids == entry.token_ids:
                slot = present
                slot.uses = uses
                if slot.pins == 0:
                    self._idle.touch(entry.key, slot.worth)
            elif present is None and self._admit(entry, since, seen=uses > 1):
                slot = Slot(entry, uses=uses)
                self._kept[entry.key] = slot
                self._idle.touch(entry.key, slot.worth)
                self._held_bytes += entry.nbytes
                self._idle_bytes += entry.nbytes
                self._inserts += 1
            else:
                self._rejected += 1
                if pin:
                    self._lend(entry)
                return entry
            if pin:
                self._pin(slot)
            return slot.entry

    def evict(self, num_bytes: int) -> int:
        with self._lock:
            return self._evict(num_bytes)

    def invalidate(
        self,
        *,
        source_id: str | None = None,
        version_before: str | None = None,
        tenant: str | None = None,
        group: str | None = None,
    ) -> int:
        return self.withdraw(Invalidation(source_id, version_before, tenant, group))

    def withdraw(self, call: Invalidation | None) -> int:
        """:meth:`invalidate` for conditions at hand; without any, everything that is kept or being built."""
        with self._lock:
            covered = [s for s in self._kept.values() if call is None or call.covers(s.entry, self._version_order)]
            self._log.append(call)
            for slot in covered:
                del self._kept[slot.entry.key]
                if slot.pins:
                    self._detached[slot.entry] = slot
                else:
                    self._idle.remove(slot.entry.key)
                    self._drop_idle(slot)
            self._invalidated += len(covered)
            return len(covered)

    def entries(self) -> list[SegmentEntry]:
        with self._lock:
            return [slot.entry for slot in self._kept.values()]

    def overtaken(self, entry: SegmentEntry, since: int | None) -> bool:
        """Whether a call of ``invalidate`` after epoch ``since`` covers ``entry``."""
        with self._lock:
            return since is not None and self._log.overtook(entry, since, self._version_order)

    def uses(self, key: SegmentKey) -> int:
        """Touches of ``key`` that are still remembered."""
        with self._lock:
            return self._history[key]

    def flush(self) -> None:
        """Nothing is written behind."""

    def close(self) -> None:
        """Nothing is open."""

    def check_integrity(self) -> None:
        with self._lock:
            kept, detached = list(self._kept.values()), list(self._detached.values())
            idle = {key: slot for key, slot in self._kept.items() if slot.pins == 0}
            held = sum(s.entry.nbytes for s in kept) + sum(s.entry.nbytes for s in detached if not s.lent)
            laws = {
                "held_bytes is what kept and withdrawn entries take": self._held_bytes == held,
                "held_bytes is within the budget": self._held_bytes <= self._budget_bytes,
                "lent_bytes is what lent entries take": self._lent_bytes
                == sum(s.entry.nbytes for s in detached if s.lent),
                "idle entries are the kept ones without pins": set(self._idle) == set(idle),
                "idle bytes are theirs": self._idle_bytes == sum(s.entry.nbytes for s in idle.values()),
                "pins are not negative": all(s.pins >= 0 for s in kept),
                "withdrawn and lent entries are pinned": all(s.pins > 0 for s in detached),
                "an entry has one state": not any(s.entry in self._detached for s in kept),
                "entries stand under their own key": all(key == s.entry.key for key, s in self._kept.items()),
                "payloads keep their size": all(s.entry.payload.nbytes == s.entry.nbytes for s in kept + detached),
                "inserts are kept, evicted or invalidated": self._inserts
                == len(kept) + self._evictions + self._invalidated,
            }
            broken = [law for law, holds in laws.items() if not holds]
        if broken:
            raise AssertionError(f"the segment store broke: {'; '.join(broken)}")

    def stats(self) -> StoreStats:
        with self._lock:
            return StoreStats(
                hits=self._hits,
                misses=self._misses,
                inserts=self._inserts,
                evictions=self._evictions,
                invalidated=self._invalidated,
                rejected=self._rejected,
                held_bytes=self._held_bytes,
                lent_bytes=self._lent_bytes,
                budget_bytes=self._budget_bytes,
                entries=len(self._kept),
                pinned=len(self._kept) - len(self._idle) + len(self._detached),
            )

    def _pin(self, slot: Slot) -> None:
        if slot.pins == 0:
            self._idle.remove(slot.entry.key)
            self._idle_bytes -= slot.entry.nbytes
        slot.pins += 1

    def _lend(self, entry: SegmentEntry) -> None:
        slot = self._detached.get(entry)
        if slot is None:
            slot = self._detached[entry] = Slot(entry, lent=True)
            self._lent_bytes += entry.nbytes
        slot.pins += 1

    def _admit(self, entry: SegmentEntry, since: int | None, *, seen: bool) -> bool:
        """Whether ``entry`` may be kept; if so, there is room for it afterwards."""
        if entry in self._detached:  # withdrawn or rejected before, and still in use: it cannot come back
            return False
        if since is not None and self._log.overtook(entry, since, self._version_order):
            return False
        needed = self._held_bytes + entry.nbytes - self._budget_bytes
        refusal = self._admission.refusal(
            num_tokens=entry.key.num_tokens,
            nbytes=entry.nbytes,
            budget_bytes=self._budget_bytes,
            seen=seen or entry.key.is_prefix,
            must_evict=needed > 0,
        )
        if needed > self._idle_bytes or refusal:
            return False
        self._evict(needed)
        return True

    def _evict(self, num_bytes: int) -> int:
        freed = 0
        while freed < num_bytes and self._idle:
            slot = self._kept.pop(self._idle.pop())
            self._drop_idle(slot)
            self._evictions += 1
            freed += slot.entry.nbytes
        return freed

    def _drop_idle(self, slot: Slot) -> None:
        self._idle_bytes -= slot.entry.nbytes
        self._held_bytes -= slot.entry.nbytes
