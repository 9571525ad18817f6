"""The store in memory, verb by verb."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from threading import Barrier, Thread

import pytest

from hypic_agents.core import Scope
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.memory import MemoryStore


@dataclass(eq=False)
class Bytes:
    nbytes: int


def make(
    token: int,
    nbytes: int = 10,
    *,
    source_id: str = "",
    version: str = "",
    scope: Scope = Scope(),  # noqa: B008  (frozen)
    depends_on: tuple[tuple[str, str], ...] = (),
) -> SegmentEntry:
    key = SegmentKey.of((token,), model="m", recipe="r", scope=scope)
    return SegmentEntry(key, (token,), Bytes(nbytes), source_id, version, depends_on)


def find(store: SegmentStore, entry: SegmentEntry) -> bool:
    """Whether a request finds ``entry`` itself; leaves no pin."""
    found = store.acquire(entry.key, entry.token_ids)
    if found is not None:
        store.release(found)
    return found is entry


@pytest.fixture
def store():
    store = MemoryStore(30)
    yield store
    store.check_integrity()


def test_miss_insert_hit(store: MemoryStore) -> None:
    entry = make(1)
    assert store.acquire(entry.key, entry.token_ids) is None
    assert store.insert(entry) is entry
    assert store.acquire(entry.key, list(entry.token_ids)) is entry
    stats = store.stats()
    assert (stats.misses, stats.inserts, stats.hits, stats.entries, stats.pinned) == (1, 1, 1, 1, 1)
    assert (stats.held_bytes, stats.budget_bytes) == (10, 30)


def test_a_duplicate_is_never_stored_twice(store: MemoryStore) -> None:
    first, second = make(1), make(1, 20)
    store.insert(first)
    assert store.insert(second) is first
    assert store.insert(first) is first
    stats = store.stats()
    assert (stats.inserts, stats.entries, stats.held_bytes, stats.rejected) == (1, 1, 10, 0)


def test_least_recently_used_leaves_first(store: MemoryStore) -> None:
    a, b, c, d = (make(i) for i in range(4))
    for entry in (a, b, c):
        store.insert(entry)
    assert find(store, a)
    store.insert(d)
    assert [find(store, entry) for entry in (a, b, c, d)] == [True, False, True, True]
    assert store.stats().evictions == 1


def test_an_insert_that_meets_its_entry_refreshes_it(store: MemoryStore) -> None:
    a, b, c, d = (make(i) for i in range(4))
    for entry in (a, b, c, make(0), d):
        store.insert(entry)
    assert [find(store, entry) for entry in (a, b)] == [True, False]


def test_recency_counts_from_the_last_release(store: MemoryStore) -> None:
    a, b, c, d = (make(i) for i in range(4))
    store.insert(a, pin=True)
    store.insert(b)
    store.insert(c)
    store.release(a)
    store.insert(d)
    assert [find(store, entry) for entry in (a, b)] == [True, False]


def test_pinned_entries_stay_and_pins_add_up(store: MemoryStore) -> None:
    a, b = make(1), make(2, 30)
    store.insert(a, pin=True)
    assert store.acquire(a.key, a.token_ids) is a
    for _ in range(2):
        assert store.evict(100) == 0
        assert store.insert(b) is b
        store.release(a)
    assert store.stats().rejected == 2
    store.insert(b)
    assert [find(store, a), find(store, b)] == [False, True]


def test_an_insert_evicts_nothing_unless_that_makes_room(store: MemoryStore) -> None:
    idle, pinned = make(1), make(2)
    store.insert(idle)
    store.insert(pinned, pin=True)
    store.insert(make(3, 25))
    store.insert(make(4, 31))
    assert find(store, idle)
    assert (store.stats().rejected, store.stats().evictions) == (2, 0)


def test_a_rejected_entry_serves_its_request_only(store: MemoryStore) -> None:
    big = make(1, 31)
    assert store.insert(big, pin=True) is big
    assert store.acquire(big.key, big.token_ids) is None
    assert store.insert(big, pin=True) is big
    stats = store.stats()
    assert (stats.held_bytes, stats.lent_bytes, stats.pinned, stats.rejected) == (0, 31, 1, 2)
    store.check_integrity()
    store.release(big)
    assert store.stats().lent_bytes == 31
    store.release(big)
    assert (store.stats().lent_bytes, store.stats().pinned) == (0, 0)
    with pytest.raises(ValueError, match="not pinned"):
        store.release(big)


def test_budget_of_zero_keeps_only_empty_payloads() -> None:
    store = MemoryStore(0)
    store.insert(make(1, 1))
    store.insert(make(2, 0))
    assert store.stats().entries == 1
    with pytest.raises(InvalidInput, match="budget_bytes=-1"):
        MemoryStore(-1)


def test_evict_frees_at_least_what_was_asked_oldest_first(store: MemoryStore) -> None:
    a, b, c = make(1, 5), make(2, 5), make(3, 5)
    for entry in (a, b, c):
        store.insert(entry)
    assert store.evict(0) == 0
    assert store.evict(6) == 10
    assert [find(store, entry) for entry in (a, b, c)] == [False, False, True]
    assert store.evict(1000) == 5


@pytest.mark.parametrize("state", ["never inserted", "idle", "evicted", "another object"])
def test_release_of_what_is_not_pinned_changes_nothing(store: MemoryStore, state: str) -> None:
    entry = make(1)
    if state != "never inserted":
        store.insert(entry, pin=state == "another object")
    if state == "evicted":
        store.evict(10)
    before = store.stats()
    with pytest.raises(ValueError, match="not pinned"):
        store.release(make(1) if state == "another object" else entry)
    assert store.stats() == before


def test_colliding_digests_never_serve_the_other_segment(store: MemoryStore) -> None:
    first = make(1)
    other = SegmentEntry(replace(first.key), (2,), Bytes(10))
    store.insert(first)
    assert store.acquire(other.key, (2,)) is None
    assert store.insert(other, pin=True) is other
    assert store.acquire(other.key, (2,)) is None
    assert find(store, first)
    assert store.stats().rejected == 1
    store.release(other)


def test_an_entry_is_visible_in_exactly_its_scope(store: MemoryStore) -> None:
    scopes = [Scope("a"), Scope("b"), Scope("a", frozenset({"x"})), Scope("a", frozenset({"x", "y"}))]
    for owner in scopes:
        entry = make(1, scope=owner)
        store.insert(entry)
        for scope in scopes:
            assert find(store, SegmentEntry(replace(entry.key, scope=scope), (1,), Bytes(1))) is False
            found = store.acquire(replace(entry.key, scope=scope), (1,))
            assert (found is entry) == (scope == owner)
            if found:
                store.release(found)
        store.evict(100)


RED, BLUE = Scope("red"), Scope("blue", frozenset({"x", "y"}))
CATALOGUE = {
    "manual 1 red": make(1, 1, source_id="manual", version="1", scope=RED),
    "manual 2 red": make(2, 1, source_id="manual", version="2", scope=RED),
    "manual 10 blue": make(3, 1, source_id="manual", version="10", scope=BLUE),
    "manual ? red": make(4, 1, source_id="manual", scope=RED),
    "news 1 blue": make(5, 1, source_id="news", version="1", scope=BLUE),
    "news 2 on manual 1": make(6, 1, source_id="news", version="2", scope=RED, depends_on=(("manual", "1"),)),
}


@pytest.mark.parametrize(
    ("conditions", "order", "gone"),
    [
        ({"source_id": "manual"}, str, "manual 1 red,manual 2 red,manual 10 blue,manual ? red,news 2 on manual 1"),
        (
            {"source_id": "manual", "version_before": "2"},
            str,
            "manual 1 red,manual 10 blue,manual ? red,news 2 on manual 1",
        ),
        ({"source_id": "manual", "version_before": "2"}, int, "manual 1 red,manual ? red,news 2 on manual 1"),
        ({"source_id": "manual", "version_before": ""}, int, ""),
        ({"source_id": "manual", "tenant": "blue"}, str, "manual 10 blue"),
        ({"tenant": "blue"}, str, "manual 10 blue,news 1 blue"),
        ({"group": "x"}, str, "manual 10 blue,news 1 blue"),
        ({"group": "x", "tenant": "red"}, str, ""),
        ({"source_id": "absent"}, str, ""),
    ],
)
def test_invalidate_covers_what_meets_every_condition(
    conditions: dict[str, str], order: Callable[[str], object], gone: str
) -> None:
    store = MemoryStore(100, version_order=order)
    for entry in CATALOGUE.values():
        store.insert(entry)
    assert store.invalidate(**conditions) == len(gone.split(",")) - (not gone)
    assert {name for name, entry in CATALOGUE.items() if not find(store, entry)} == set(filter(None, gone.split(",")))
    store.check_integrity()


@pytest.mark.parametrize("conditions", [{}, {"version_before": "2"}, {"version_before": "2", "tenant": "red"}], ids=str)
def test_invalidate_needs_conditions_that_mean_something(store: MemoryStore, conditions: dict[str, str]) -> None:
    store.insert(make(1))
    with pytest.raises(InvalidInput):
        store.invalidate(**conditions)
    assert (store.stats().entries, store.epoch) == (1, 0)


def test_a_version_order_that_fails_changes_nothing() -> None:
    store = MemoryStore(100, version_order=int)
    store.insert(make(1, source_id="a", version="1"))
    store.insert(make(2, source_id="a", version="draft"))
    with pytest.raises(ValueError, match="draft"):
        store.invalidate(source_id="a", version_before="2")
    assert (store.stats().entries, store.epoch) == (2, 0)
    store.check_integrity()


def test_an_invalidated_pinned_entry_is_not_found_and_leaves_at_its_last_release(store: MemoryStore) -> None:
    old = make(1, source_id="a")
    payload = weakref.ref(old.payload)
    store.insert(old, pin=True)
    store.acquire(old.key, old.token_ids)
    assert store.invalidate(source_id="a") == 1
    assert store.acquire(old.key, old.token_ids) is None
    assert store.insert(old) is old
    assert not find(store, old)
    new = make(1, source_id="a")
    assert store.insert(new) is new
    assert store.insert(old) is new
    store.release(old)
    store.check_integrity()
    assert (store.stats().held_bytes, store.stats().pinned) == (20, 1)
    store.release(old)
    assert (store.stats().held_bytes, store.stats().pinned) == (10, 0)
    assert find(store, new)
    del old
    gc.collect()
    assert payload() is None


def test_withdrawn_entries_still_fill_the_budget(store: MemoryStore) -> None:
    old = make(1, 25, source_id="a")
    store.insert(old, pin=True)
    store.invalidate(source_id="a")
    store.insert(make(2))
    assert (store.stats().held_bytes, store.stats().rejected) == (25, 1)
    store.release(old)
    store.insert(make(2))
    assert store.stats().held_bytes == 10


def test_a_build_that_an_invalidation_overtook_is_not_kept(store: MemoryStore) -> None:
    since = store.epoch
    stale, other = make(1, source_id="a"), make(2, source_id="b")
    store.invalidate(source_id="a")
    assert store.insert(stale, since=since) is stale
    assert not find(store, stale)
    store.insert(other, since=since)
    assert find(store, other)
    fresh = make(1, source_id="a")
    store.insert(fresh, since=store.epoch)
    assert find(store, fresh)
    assert store.insert(stale, since=since) is fresh


def test_a_build_older_than_the_remembered_invalidations_is_not_kept(store: MemoryStore) -> None:
    since = store.epoch
    for i in range(300):
        store.invalidate(source_id=f"unrelated-{i}")
    store.insert(make(1, source_id="a"), since=since)
    store.insert(make(2, source_id="a"), since=since + 100)
    assert (store.stats().rejected, store.stats().entries) == (1, 1)


def test_integrity_check_sees_a_payload_that_grew() -> None:
    store, entry = MemoryStore(30), make(1)
    store.insert(entry)
    entry.payload.nbytes = 99
    with pytest.raises(AssertionError, match="payloads keep their size"):
        store.check_integrity()


def run_threads(work: Callable[[int], None], count: int = 6) -> None:
    failures: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures, failures


def test_concurrent_builders_of_one_segment_end_with_one_entry(store: MemoryStore) -> None:
    barrier = Barrier(6)
    used: list[SegmentEntry] = []

    def build(_: int) -> None:
        entry = make(1)
        barrier.wait()
        used.append(store.insert(entry, pin=True))

    run_threads(build)
    assert len(set(used)) == 1
    assert (store.stats().inserts, store.stats().held_bytes) == (1, 10)
    for entry in used:
        store.release(entry)
    assert store.stats().pinned == 0


def test_threads_conserve(store: MemoryStore) -> None:
    def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(300):
            since = store.epoch
            fresh = make(random.randrange(6), source_id=random.choice("ab"))
            entry = store.acquire(fresh.key, fresh.token_ids) or store.insert(fresh, pin=True, since=since)
            assert entry.token_ids == fresh.token_ids
            if random.random() < 0.1:
                store.invalidate(source_id=random.choice("ab"))
            if random.random() < 0.1:
                store.evict(random.randrange(30))
            store.check_integrity()
            store.release(entry)

    run_threads(work)
    stats = store.stats()
    assert (stats.pinned, stats.lent_bytes) == (0, 0)
    assert stats.hits + stats.misses == 6 * 300
