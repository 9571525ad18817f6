"""A local segment store over a remote place that other machines use too. No torch.

What the local store is offered is also written there, behind the request's back; what it lacks is looked for there,
within a time limit, and comes back into it. An invalidation is told to all engines that use the place.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock

from hypic_agents.errors import StoreUnavailable
from hypic_agents.runtime.cache.applied import load_applied, save_applied
from hypic_agents.runtime.cache.base import LocalStore, SegmentStore, StoreStats, Wanted
from hypic_agents.runtime.cache.connection import LOG
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.invalidation import Invalidation, VersionOrder
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.remote import Found, Known, RemoteTier
from hypic_agents.runtime.cache.writer import WriteBehind, WriteJob

# A chat needs each of its checkpoints once, and then never again: only what is wanted more often is worth a transfer.
_PREFIX_USES = 3


class RemoteStore:
    """A :class:`~hypic_agents.runtime.cache.base.SegmentStore` over a local one and a remote place, which it owns.

    Args:
        local: Memory, or memory over a disk.
        remote: The place.
        version_order: The one that both were given.
        applied_path: A file that remembers which calls the local store has applied, if it outlives the process.
        follow_s: Calls of other engines are asked for once in so many seconds, when the store is used.
        max_pending_bytes: Most payload bytes that wait to be written there; what comes on top is not written.
        now: A clock that only grows, in seconds.
    """

    def __init__(
        self,
        local: LocalStore,
        remote: RemoteTier,
        *,
        version_order: VersionOrder = str,
        applied_path: Path | None = None,
        follow_s: float = 5.0,
        max_pending_bytes: int = 256 << 20,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._local = local
        self._remote = remote
        self._version_order = version_order
        self._applied_path = applied_path
        self._follow_s = follow_s
        self._now = now
        self._lock = Lock()
        self._applying = Lock()
        self._applied: Known = load_applied(applied_path)
        self._restored = frozenset(self._applied)
        self._hits = 0
        self._followed_at = float("-inf")
        self._writer: WriteBehind[Known] = WriteBehind(remote, max_pending_bytes)
        self._closing = weakref.finalize(self, _close, self._writer, local, os.getpid())
        self._follow()

    @property
    def epoch(self) -> int:
        self._follow()
        return self._local.epoch

    @property
    def version_order(self) -> VersionOrder:
        return self._version_order

    def acquire(self, key: SegmentKey, token_ids: Sequence[int]) -> SegmentEntry | None:
        return self.acquire_all([(key, token_ids)])[0]

    def acquire_all(self, wanted: Sequence[Wanted]) -> list[SegmentEntry | None]:
        self._follow()
        since, known = self._local.epoch, self._applied  # before the look-up: an invalidation may follow on it
        held = self._local.acquire_all(wanted)
        try:
            for entry in filter(None, held):
                self._offer(entry, known)
            missing = [i for i, entry in enumerate(held) if entry is None]
            found = self._remote.read([wanted[i] for i in missing])
            if any(found):
                self._apply()
            for i, one in zip(missing, found, strict=True):
                held[i] = None if one is None else self._take(one, since)
        except BaseException:
            for entry in filter(None, held):
                self._local.release(entry)
            raise
        return held

    def _take(self, found: Found, since: int) -> SegmentEntry | None:
        """Keep and pin what was read there, unless an invalidation covers it."""
        entry, outlived = found
        if self._remote.refuses(entry, outlived):
            return None
        used = self._local.insert(entry, pin=True, since=since)
        if self._local.overtaken(used, since):
            self._local.release(used)
            return None
        with self._lock:
            self._hits += 1
        return used

    def release(self, entry: SegmentEntry) -> None:
        self._local.release(entry)

    def insert(self, entry: SegmentEntry, *, pin: bool = False, since: int | None = None) -> SegmentEntry:
        known = self._applied
        used = self._local.insert(entry, pin=pin, since=since)
        if used is entry and not self._local.overtaken(entry, since):
            self._offer(entry, known)
        return used

    def evict(self, num_bytes: int) -> int:
        return self._local.evict(num_bytes)

    def invalidate(
        self,
        *,
        source_id: str | None = None,
        version_before: str | None = None,
        tenant: str | None = None,
        group: str | None = None,
    ) -> int:
        """See :class:`~hypic_agents.runtime.cache.base.SegmentStore`; counts local entries, covers the remote ones too.

        Raises:
            StoreUnavailable: the disk could not be changed, and nothing changed; or this engine forgot the entries,
                and the remote place did not take the message for the others.
        """
        call = Invalidation(source_id, version_before, tenant, group)
        number = self._remote.announce(call)
        try:
            gone = self._local.withdraw(call)
        except BaseException:
            self._remote.take_back(number)
            raise
        self._writer.cancel(lambda entry: call.covers(entry, self._version_order))
        self._mark({number})
        self._remote.publish(number)
        return gone

    def flush(self) -> None:
        self._local.flush()
        self._writer.flush()

    def close(self) -> None:
        self._closing()

    def check_integrity(self) -> None:
        self._local.check_integrity()

    def stats(self) -> StoreStats:
        stats = self._local.stats()
        with self._lock:
            hits = self._hits
        return replace(
            stats,
            hits=stats.hits + hits,
            misses=stats.misses - hits,
            remote_hits=hits,
            remote_pending_bytes=self._writer.pending_bytes,
            remote_dropped=self._writer.dropped,
            remote_failures=self._remote.failures,
            damaged=stats.damaged + self._remote.damaged,
        )

    def _offer(self, entry: SegmentEntry, known: Known) -> None:
        if self._remote.is_there(entry.key):
            return
        uses = self._local.uses(entry.key)
        if uses >= _PREFIX_USES or not entry.key.is_prefix:
            self._writer.put(WriteJob(entry, known, uses))

    def _follow(self) -> None:
        """Ask for other engines' calls if that was long ago, and apply them to the local store."""
        with self._lock:
            now = self._now()
            if now - self._followed_at < self._follow_s:
                return
            self._followed_at = now
        if self._remote.refresh():
            self._apply()

    def _apply(self) -> None:
        with self._applying:
            calls = self._remote.calls
            forgotten = self._restored - calls.keys()  # by the place, since the last process: they need no mention
            with self._lock:
                self._applied = tuple(number for number in self._applied if number not in forgotten)
                applied = set(self._applied)
            done = set()
            for number, call in calls.items():
                if number in applied:
                    continue
                try:
                    self._withdraw(call)
                except StoreUnavailable as error:
                    LOG.warning("what other machines invalidated cannot be applied now: %s", error)
                    break
                done.add(number)
        if done:
            self._mark(done)

    def _withdraw(self, call: Invalidation | None) -> None:
        def covered(entry: SegmentEntry) -> bool:
            return call is None or call.covers(entry, self._version_order)

        try:
            self._writer.cancel(covered)
            self._local.withdraw(call)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001  the version order is the user's, the versions another machine's
            LOG.exception("an invalidation of another machine cannot be compared; everything is dropped")
            self._writer.cancel(lambda _: True)
            self._local.withdraw(None)

    def _mark(self, numbers: set[int]) -> None:
        """Remember what was applied: only afterwards may entries claim to have outlived it."""
        with self._lock:
            self._applied = (*self._applied, *sorted(numbers - set(self._applied)))
            applied = self._applied
        self._remote.forget()
        if self._applied_path is not None:
            save_applied(self._applied_path, applied)


def _close(writer: WriteBehind[Known], local: SegmentStore, pid: int) -> None:
    if os.getpid() == pid:  # a forked child has neither the threads nor connections of its own
        writer.close()
        local.close()
