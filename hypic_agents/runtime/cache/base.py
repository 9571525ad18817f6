"""The contract of the segment store: who owns an entry when, and which verb moves it.

::

                    insert                             evict, or room for another insert
    builder ------------------------> kept, idle ------------------------------------------> gone
       |                               |      ^                                                ^
       |                       acquire |      | last release                                   |
       | insert, does not fit          v      |            invalidate                          |
       |                              kept, pinned -------------------> withdrawn, pinned      |
       |                                                                       |  last release |
       '---> lent (pinned only if asked for) ----------------------------------+---------------'

* kept: findable, counted in ``held_bytes``. Idle entries may leave at any time; pinned ones never.
* withdrawn: invalidated while pinned. No request finds it any more; those that hold it may finish on it. Still
  counted in ``held_bytes``, because its memory is still taken.
* lent: did not fit, or was invalidated while it was being built. It serves its own request and nobody else, and is
  counted in ``lent_bytes``, outside the budget, as long as it is pinned.

Conservation, after every verb, whatever failed: ``held_bytes <= budget_bytes``; every insert that was kept is still
kept, evicted or invalidated (``inserts == entries + evictions + invalidated``); no two kept entries share a key.
Entries are immutable: a verb moves references, never payloads' contents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.invalidation import Invalidation, VersionOrder
from hypic_agents.runtime.cache.key import SegmentKey

Wanted = tuple[SegmentKey, Sequence[int]]
"""What is looked for: a key, and the token ids that it stands for."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Counts since the store was made, and what it holds now.

    Attributes:
        hits, misses: Calls of ``acquire`` that found an entry, or none.
        inserts: Entries that were kept.
        evictions: Kept entries that left to make room.
        invalidated: Kept entries that ``invalidate`` made unfindable.
        rejected: Inserts that were not kept; an insert that met an entry of its key is none.
        held_bytes: Bytes of kept and withdrawn entries, never above ``budget_bytes``.
        lent_bytes: Bytes of pinned entries that were never kept.
        budget_bytes: The limit.
        entries: Kept entries.
        pinned: Entries held by a request: kept, withdrawn or lent.
        disk_hits: Hits (among ``hits``) that were read from the disk.
        disk_entries, disk_bytes: Files on the disk and what they take, never above ``disk_budget_bytes``.
        disk_budget_bytes: The disk's limit; 0 without a disk tier.
        disk_pending_bytes: Bytes that wait to be written.
        disk_dropped: Entries that were not written, because too much waited or the disk refused them.
        remote_hits: Hits (among ``hits``) that were read from the remote place.
        remote_pending_bytes: Bytes that wait to be written there.
        remote_dropped: Entries that were not written there, because too much waited or the place failed.
        remote_failures: Calls there that failed or took too long. Each was a miss, or left something unwritten.
        damaged: Files and remote objects that were not what had been written. Each was a miss; files are gone.

    The other counts are of the memory tier.
    """

    hits: int = 0
    misses: int = 0
    inserts: int = 0
    evictions: int = 0
    invalidated: int = 0
    rejected: int = 0
    held_bytes: int = 0
    lent_bytes: int = 0
    budget_bytes: int = 0
    entries: int = 0
    pinned: int = 0
    disk_hits: int = 0
    disk_entries: int = 0
    disk_bytes: int = 0
    disk_budget_bytes: int = 0
    disk_pending_bytes: int = 0
    disk_dropped: int = 0
    remote_hits: int = 0
    remote_pending_bytes: int = 0
    remote_dropped: int = 0
    remote_failures: int = 0
    damaged: int = 0


class SegmentStore(Protocol):
    """Finds, keeps and forgets segments. Every verb is atomic and may be called from any thread.

    Each entry that ``acquire`` returns, and that ``insert`` returns with ``pin=True``, takes exactly one ``release``;
    pins add up. Eviction order and tiers are an implementation's own.
    """

    @property
    def epoch(self) -> int:
        """Number of ``invalidate`` calls so far. Read it before a build starts, hand it to ``insert`` as ``since``."""
        ...

    @property
    def version_order(self) -> VersionOrder:
        """Sort key of a version, by which ``version_before`` is compared. What is kept beside a store takes it over."""
        ...

    def acquire(self, key: SegmentKey, token_ids: Sequence[int]) -> SegmentEntry | None:
        """Find and pin. Changes the entry's pins and recency, and hits or misses.

        None is a miss; an entry of the same key with other token ids (a digest collision) is one too.
        """
        ...

    def acquire_all(self, wanted: Sequence[Wanted]) -> list[SegmentEntry | None]:
        """:meth:`acquire` for each of several keys and token ids; a store over a slow place looks for them at once.

        Whatever is raised, nothing stays pinned.
        """
        ...

    def release(self, entry: SegmentEntry) -> None:
        """Give one pin back. The last one makes a kept entry evictable and frees a withdrawn or lent one.

        Raises:
            ValueError: the entry is not pinned; nothing changed.
        """
        ...

    def insert(self, entry: SegmentEntry, *, pin: bool = False, since: int | None = None) -> SegmentEntry:
        """Offer a built entry, and get the one to use: ``entry`` itself, or the entry already kept under its key.

        May evict idle entries, and only if that makes enough room. An entry that cannot fit, whose key is taken by
        other token ids, or that a call of ``invalidate`` after ``since`` covers, is rejected: usable, but not kept. A
        withdrawn or lent entry that is offered again while it is pinned is rejected too.

        Args:
            entry: Offered to the store; its maker may go on using it.
            pin: Pin the returned entry, whether it is kept or not.
            since: ``epoch`` when the build started; None if no invalidation can have overtaken it.
        """
        ...

    def evict(self, num_bytes: int) -> int:
        """Drop idle entries from memory until ``num_bytes`` are freed or none is left; returns the bytes freed.

        What lies on the disk stays there.
        """
        ...

    def invalidate(
        self,
        *,
        source_id: str | None = None,
        version_before: str | None = None,
        tenant: str | None = None,
        group: str | None = None,
    ) -> int:
        """Make every entry that meets all given conditions unfindable before returning; returns how many.

        Idle entries leave memory at once, pinned ones at their last release.

        Args:
            source_id: Any of the entry's sources is this one.
            version_before: That source's version comes before this one, by the store's version order: plain string
                order unless it was given another, so "2024-05-01" < "2024-11-30" and "v09" < "v10", but "10" < "9".
                An empty version comes first. Only together with ``source_id``.
            tenant: The entry's scope is of this tenant.
            group: The entry's scope names this group.

        Raises:
            InvalidInput: no condition at all, or ``version_before`` without ``source_id``; nothing changed.
        """
        ...

    def flush(self) -> None:
        """Return once everything that was to be written is written."""
        ...

    def close(self) -> None:
        """Flush, and let go of files and threads. Closing twice does nothing more."""
        ...

    def check_integrity(self) -> None:
        """Recount everything.

        Raises:
            AssertionError: the conservation law is broken; the message says where.
        """
        ...

    def stats(self) -> StoreStats:
        """A consistent snapshot."""
        ...


class LocalStore(SegmentStore, Protocol):
    """What a remote place is put under: memory, or memory over a disk."""

    def overtaken(self, entry: SegmentEntry, since: int | None) -> bool: ...
    def uses(self, key: SegmentKey) -> int: ...
    def withdraw(self, call: Invalidation | None) -> int: ...


class OneByOne(ABC):
    """``acquire_all`` for a store that is no faster for several at once."""

    @abstractmethod
    def acquire(self, key: SegmentKey, token_ids: Sequence[int]) -> SegmentEntry | None: ...

    @abstractmethod
    def release(self, entry: SegmentEntry) -> None: ...

    def acquire_all(self, wanted: Sequence[Wanted]) -> list[SegmentEntry | None]:
        held: list[SegmentEntry | None] = []
        try:
            for key, token_ids in wanted:
                held.append(self.acquire(key, token_ids))
        except BaseException:
            for entry in filter(None, held):
                self.release(entry)
            raise
        return held
