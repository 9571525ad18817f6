"""Laws 6 and 7: any order of verbs conserves, crosses no scope and serves nothing invalidated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from hypic_agents.core import Scope
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.memory import MemoryStore

BUDGET = 40
TOKENS = st.integers(0, 4)
SCOPES = st.sampled_from([Scope("a"), Scope("b"), Scope("a", frozenset({"g"}))])
SOURCES = st.sampled_from(["", "doc", "faq"])
VERSIONS = st.sampled_from(["", "1", "2", "3"])


@dataclass(eq=False)
class Bytes:
    nbytes: int


class StoreMachine(RuleBasedStateMachine):
    """Drives the store beside a model of it.

    ``accepted``: entries that may be found, which are all that were kept and not invalidated since (eviction may have
    taken an unpinned one). ``pins``: what requests hold. ``since``: the epoch in which each entry's build started.
    """

    made = Bundle("made")
    pinned = Bundle("pinned")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore(BUDGET)
        self.pins: Counter[SegmentEntry] = Counter()
        self.accepted: set[SegmentEntry] = set()
        self.since: dict[SegmentEntry, int] = {}

    @rule(
        target=made,
        token=TOKENS,
        scope=SCOPES,
        source=SOURCES,
        version=VERSIONS,
        nbytes=st.sampled_from([0, 5, 15, 41]),
    )
    def make(self, token: int, scope: Scope, source: str, version: str, nbytes: int) -> SegmentEntry:
        key = SegmentKey.of((token,), model="m", recipe="r", scope=scope)
        entry = SegmentEntry(key, (token,), Bytes(nbytes), source, version)
        self.since[entry] = self.store.epoch
        return entry

    @rule(target=made, entry=made, token=TOKENS)
    def make_collision(self, entry: SegmentEntry, token: int) -> SegmentEntry:
        other = SegmentEntry(entry.key, (token + 100,), Bytes(5))
        self.since[other] = self.store.epoch
        return other

    @rule(entry=made)
    def insert(self, entry: SegmentEntry) -> None:
        self._insert(entry, pin=False)

    @rule(target=pinned, entry=made)
    def insert_pinned(self, entry: SegmentEntry) -> SegmentEntry:
        return self._insert(entry, pin=True)

    def _insert(self, entry: SegmentEntry, *, pin: bool) -> SegmentEntry:
        before = self.store.stats()
        used = self.store.insert(entry, pin=pin, since=self.since[entry])
        after = self.store.stats()
        assert used.key == entry.key
        assert used.token_ids == entry.token_ids
        if after.inserts > before.inserts:
            assert used is entry
            self.accepted.add(entry)
        elif after.rejected > before.rejected:
            assert used is entry
            self.accepted.discard(entry)  # evicted earlier and offered again, if it was in there
        else:
            assert used in self.accepted
        self.pins[used] += pin
        return used

    @rule(target=pinned, entry=made)
    def acquire(self, entry: SegmentEntry) -> SegmentEntry | None:
        found = self.store.acquire(entry.key, entry.token_ids)
        if found is not None:
            assert found in self.accepted
            assert (found.key, found.token_ids) == (entry.key, entry.token_ids)
            self.pins[found] += 1
        return found

    @rule(entry=consumes(pinned))
    def release(self, entry: SegmentEntry | None) -> None:
        if entry is not None:
            self.store.release(entry)
            self.pins[entry] -= 1

    @rule(entry=made)
    def release_too_often(self, entry: SegmentEntry) -> None:
        if self.pins[entry] == 0:
            before = self.store.stats()
            try:
                self.store.release(entry)
            except ValueError:
                assert self.store.stats() == before
            else:
                raise AssertionError("released an entry without a pin")

    @rule(num_bytes=st.integers(0, 50))
    def evict(self, num_bytes: int) -> None:
        before = self.store.stats()
        freed = self.store.evict(num_bytes)
        after = self.store.stats()
        assert before.held_bytes - after.held_bytes == freed
        assert freed >= num_bytes or after.entries == self._findable_pinned()

    @rule(source=SOURCES, version=st.none() | VERSIONS, tenant=st.none() | st.sampled_from("ab"))
    def invalidate(self, source: str, version: str | None, tenant: str | None) -> None:
        gone = {
            entry
            for entry in self.since
            if entry.source_id == source
            and (version is None or entry.version < version)
            and (tenant is None or entry.key.scope.tenant == tenant)
        }
        self._invalidated(self.store.invalidate(source_id=source, version_before=version, tenant=tenant), gone)

    @rule(group=st.sampled_from(["g", "h"]))
    def invalidate_group(self, group: str) -> None:
        gone = {entry for entry in self.since if group in entry.key.scope.groups}
        self._invalidated(self.store.invalidate(group=group), gone)

    def _invalidated(self, count: int, gone: set[SegmentEntry]) -> None:
        assert count <= len(self.accepted & gone)
        self.accepted -= gone

    def _findable_pinned(self) -> int:
        return sum(1 for entry, pins in self.pins.items() if pins and entry in self.accepted)

    @invariant()
    def conserves(self) -> None:
        self.store.check_integrity()
        stats = self.store.stats()
        assert 0 <= stats.held_bytes <= BUDGET
        assert stats.pinned == sum(1 for pins in self.pins.values() if pins)
        assert stats.held_bytes + stats.lent_bytes >= sum(e.nbytes for e, pins in self.pins.items() if pins)

    @invariant()
    def pinned_entries_are_still_found(self) -> None:
        for entry, pins in self.pins.items():
            if pins and entry in self.accepted:
                assert self.store.acquire(entry.key, entry.token_ids) is entry
                self.store.release(entry)

    def teardown(self) -> None:
        for entry, pins in self.pins.items():
            for _ in range(pins):
                self.store.release(entry)
        self.store.evict(BUDGET)
        self.store.check_integrity()
        stats = self.store.stats()
        assert (stats.held_bytes, stats.lent_bytes, stats.pinned) == (0, 0, 0)


StoreMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestStoreMachine = StoreMachine.TestCase
