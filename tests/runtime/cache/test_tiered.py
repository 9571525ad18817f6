"""Memory over disk: promotion, writing behind, and what several stores on one directory owe each other."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import pytest

from hypic_agents.core import Scope
from hypic_agents.errors import StoreUnavailable
from hypic_agents.runtime.cache.admission import Admission
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.invalidation import Invalidation
from hypic_agents.runtime.cache.memory import MemoryStore
from hypic_agents.runtime.cache.record import entry_name
from hypic_agents.runtime.cache.tiered import TieredStore
from tests.runtime.cache.blobs import file_bytes, make, open_tier, same


def open_store(root: Path, *, memory: int = 1000, disk: int = 1 << 20, **options: Any) -> TieredStore:
    return TieredStore(MemoryStore(memory), open_tier(root, disk, **options))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TieredStore]:
    store = open_store(tmp_path)
    yield store
    store.flush()
    store.check_integrity()
    store.close()


def finds(store: TieredStore, entry: SegmentEntry) -> bool:
    found = store.acquire(entry.key, entry.token_ids)
    if found is not None:
        store.release(found)
    return same(found, entry)


def test_what_memory_evicted_comes_back_from_the_disk(store: TieredStore) -> None:
    entry = make(1, source_id="a")
    assert store.insert(entry) is entry
    store.flush()
    assert store.evict(1000) == 100
    assert finds(store, entry)
    assert finds(store, entry)
    stats = store.stats()
    assert (stats.hits, stats.disk_hits, stats.misses, stats.entries, stats.disk_entries) == (2, 1, 0, 1, 1)
    assert (stats.disk_bytes, stats.disk_budget_bytes, stats.disk_pending_bytes) == (file_bytes(entry), 1 << 20, 0)


def test_a_new_store_on_the_directory_hits_at_once(store: TieredStore, tmp_path: Path) -> None:
    entry = make(1)
    store.insert(entry)
    store.flush()
    other = open_store(tmp_path)
    assert finds(other, entry)
    other.close()


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    entries = [make(i) for i in range(20)]
    store = open_store(tmp_path)
    for entry in entries:
        store.insert(entry)
    store.close()
    store.close()
    again = open_store(tmp_path)
    assert all(finds(again, entry) for entry in entries)
    again.close()


def test_a_store_that_is_forgotten_closes_itself(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.insert(make(1))
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None
    again = open_store(tmp_path)
    assert finds(again, make(1))
    again.close()


def test_a_process_that_ends_without_closing_writes_what_waits(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from tests.runtime.cache.blobs import make
from tests.runtime.cache.test_tiered import open_store
store = open_store(Path({str(tmp_path)!r}))
for token in range(5):
    store.insert(make(token))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3], timeout=60)
    store = open_store(tmp_path)
    assert all(finds(store, make(token)) for token in range(5))
    store.close()


def test_an_entry_too_large_for_memory_is_served_from_the_disk(store: TieredStore) -> None:
    big = make(1, 2000)
    store.insert(big)
    store.flush()
    found = store.acquire(big.key, big.token_ids)
    assert same(found, big)
    assert store.stats().lent_bytes == 2000
    assert found is not None
    store.release(found)
    assert store.stats().lent_bytes == 0


class Gate:
    """Holds the writer before its first file."""

    def __init__(self, store: TieredStore) -> None:
        self.reached, self.open = Event(), Event()
        write = store._disk.write

        def held(*args: Any, **options: Any) -> Any:
            self.reached.set()
            assert self.open.wait(30)
            return write(*args, **options)

        store._disk.write = held  # type: ignore[method-assign]


def test_what_waits_to_be_written_is_found(store: TieredStore) -> None:
    gate = Gate(store)
    entry = make(1)
    store.insert(entry)
    gate.reached.wait(30)
    store.evict(1000)
    assert finds(store, entry)
    assert store.stats().disk_pending_bytes == 100
    gate.open.set()


@pytest.mark.parametrize("scope_wide", [False, True])
def test_an_invalidation_reaches_what_waits_and_what_is_being_written(
    store: TieredStore, tmp_path: Path, scope_wide: bool
) -> None:
    gate = Gate(store)
    scope = Scope("t", frozenset({"g"}))
    being_written, waiting, other = (make(i, source_id=s, scope=scope) for i, s in enumerate("aab"))
    for entry in (being_written, waiting, other):
        store.insert(entry)
    gate.reached.wait(30)
    assert store.invalidate(**({"group": "g"} if scope_wide else {"source_id": "a"})) == (3 if scope_wide else 2)
    assert not finds(store, being_written)
    gate.open.set()
    store.flush()
    assert [finds(store, entry) for entry in (being_written, waiting, other)] == [False, False, not scope_wide]
    again = open_store(tmp_path)
    assert [finds(again, entry) for entry in (being_written, waiting, other)] == [False, False, not scope_wide]
    again.close()


def test_too_much_that_waits_is_dropped_and_counted(tmp_path: Path) -> None:
    store = TieredStore(MemoryStore(1000), open_tier(tmp_path), max_pending_bytes=150)
    gate = Gate(store)
    store.insert(make(1, 300))  # a single larger one may wait alone
    gate.reached.wait(30)
    store.insert(make(2))
    gate.open.set()
    store.flush()
    assert (store.stats().disk_dropped, store.stats().disk_entries) == (1, 1)
    store.close()


def test_invalidating_in_one_store_reaches_the_memory_of_another(store: TieredStore, tmp_path: Path) -> None:
    other = open_store(tmp_path)
    old, apart = make(1, source_id="a", version="1"), make(2, source_id="b")
    for each in (store, other):
        each.insert(old)
        each.insert(apart)
        each.flush()
    held = other.acquire(old.key, old.token_ids)
    since = other.epoch
    assert store.invalidate(source_id="a", version_before="2") == 1
    assert [finds(other, old), finds(other, apart)] == [False, True]
    assert other.epoch == since + 1
    late = make(3, source_id="a", version="1")
    other.insert(late, since=since)
    other.flush()
    assert not finds(other, late)
    assert held is not None
    other.release(held)
    other.check_integrity()
    other.close()


def test_withdrawing_everything_reaches_other_stores_and_what_is_being_built(
    store: TieredStore, tmp_path: Path
) -> None:
    other = open_store(tmp_path)
    entry, late = make(1, source_id="a"), make(2)
    for each in (store, other):
        each.insert(entry)
        each.flush()
    epochs = [store.epoch, other.epoch]
    assert store.withdraw(None) == 1
    assert [store.epoch, other.epoch] == [epoch + 1 for epoch in epochs]
    for each, since in zip((store, other), epochs, strict=True):
        each.insert(late, since=since)
        each.flush()
        assert not finds(each, entry)
        assert not finds(each, late)
        assert not each._disk.contains(late.key)
    store.insert(late)
    store.flush()
    assert finds(other, late)
    other.close()


def test_memory_forgets_what_was_invalidated_though_the_index_cannot_be_read(
    store: TieredStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(operation: Callable[..., Any]) -> Any:
        raise StoreUnavailable("gone")

    old, apart = make(1, source_id="a"), make(2)
    store.insert(old)
    store.insert(apart)
    store.flush()
    with monkeypatch.context() as patched:
        patched.setattr(store._disk._questions, "do", gone)
        assert store.invalidate(source_id="a") == 1
        assert [finds(store, old), finds(store, apart)] == [False, True]
    assert [finds(store, old), finds(store, apart)] == [False, True]


def test_a_failing_version_order_changes_nothing(tmp_path: Path) -> None:
    store = TieredStore(MemoryStore(1000, version_order=int), open_tier(tmp_path, version_order=int), version_order=int)
    entry = make(1, source_id="a", version="draft")
    store.insert(entry)
    store.flush()
    store.evict(1000)
    with pytest.raises(ValueError, match="draft"):
        store.invalidate(source_id="a", version_before="2")
    assert finds(store, entry)
    store.close()


def test_an_invalidation_that_cannot_be_compared_drops_all_of_memory(tmp_path: Path) -> None:
    store = TieredStore(MemoryStore(1000, version_order=int), open_tier(tmp_path, version_order=int), version_order=int)
    entry, apart = make(1, source_id="a", version="1"), make(2)
    for each in (entry, apart):
        store.insert(each)
    store.flush()
    since = store.epoch
    with store._disk._changes._index.change():
        store._disk._changes._index.log(Invalidation(source_id="a", version_before="draft"))
    assert store.stats().entries == 2
    assert finds(store, apart)
    assert store.stats().disk_hits == 1
    late = make(3)
    store.insert(late, since=since)
    store.flush()
    assert not store._disk.contains(late.key)
    store.close()


def test_a_lost_log_drops_all_of_memory_and_what_is_being_built(store: TieredStore, tmp_path: Path) -> None:
    entry, late = make(1), make(2)
    store.insert(entry)
    store.flush()
    since = store.epoch
    for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    assert finds(store, entry)
    assert store.stats().disk_hits == 1  # the file is the proof that it is valid, memory is none
    assert store.insert(late, since=since) is late
    assert not finds(store, late)
    store.insert(late)
    assert finds(store, late)


def test_the_disk_takes_at_the_second_touch_what_it_deferred(tmp_path: Path) -> None:
    store = open_store(tmp_path, disk=file_bytes(make(1)), admission=Admission(second_touch=True))
    first, second = make(1), make(2)
    for entry in (first, second):
        store.insert(entry)
        store.flush()
    assert [store._disk.contains(entry.key) for entry in (first, second)] == [True, False]
    assert finds(store, second)
    store.flush()
    assert [store._disk.contains(entry.key) for entry in (first, second)] == [False, True]
    store.close()


def test_what_is_invalidated_right_after_it_was_found_is_not_written_late(tmp_path: Path) -> None:
    store = open_store(tmp_path, disk=file_bytes(make(1)), admission=Admission(second_touch=True))
    deferred = make(2, source_id="a")
    for entry in (make(1), deferred):
        store.insert(entry)
        store.flush()
    acquire = store._memory.acquire

    def acquire_then_invalidate(*args: Any) -> SegmentEntry | None:
        found = acquire(*args)
        assert store.invalidate(source_id="a") == 1
        return found

    store._memory.acquire = acquire_then_invalidate  # type: ignore[method-assign]
    held = store.acquire(deferred.key, deferred.token_ids)
    store._memory.acquire = acquire  # type: ignore[method-assign]
    assert held is deferred
    store.release(held)
    store.flush()
    assert not finds(store, deferred)
    assert not store._disk.contains(deferred.key)
    store.close()


def test_a_disk_that_is_gone_leaves_a_store_in_memory(
    store: TieredStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(operation: Callable[..., Any]) -> Any:
        raise StoreUnavailable("gone")

    entry = make(1)
    with monkeypatch.context() as patched:
        patched.setattr(store._disk._questions, "do", gone)
        patched.setattr(store._disk._changes, "do", gone)
        store.insert(entry)
        store.flush()
        assert finds(store, entry)
        assert not finds(store, make(2))
        assert store.stats().disk_dropped == 1
        with pytest.raises(StoreUnavailable):
            store.invalidate(source_id="a")
        assert finds(store, entry)
    assert any(record.levelno == logging.WARNING for record in caplog.records)


def test_tenants_in_threads_never_share(tmp_path: Path) -> None:
    """The same texts, three tenants, two stores on one directory, invalidations in between."""
    stores = [open_store(tmp_path, memory=600, disk=3000) for _ in range(2)]
    scopes = [Scope(name, frozenset({"g"})) for name in "abc"]
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        random, store = Random(seed), stores[seed % 2]
        scope = scopes[seed % 3]
        try:
            for _ in range(60):
                since = store.epoch
                fresh = make(random.randrange(6), source_id=scope.tenant, scope=scope)
                entry = store.acquire(fresh.key, fresh.token_ids) or store.insert(fresh, pin=True, since=since)
                assert entry.key.scope == scope
                assert same(entry, fresh)
                if random.random() < 0.05:
                    store.invalidate(source_id=scope.tenant)
                store.release(entry)
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures
    for store in stores:
        store.flush()
        store.check_integrity()
        assert store.stats().pinned == 0
        assert store.stats().hits + store.stats().misses == 180
        assert store.stats().damaged == 0
    for store in stores:
        store.close()
    assert entry_name(make(1, scope=scopes[0]).key) != entry_name(make(1, scope=scopes[1]).key)


@pytest.mark.slow
def test_ten_thousand_requests_conserve(tmp_path: Path) -> None:
    store = open_store(tmp_path, memory=2_000, disk=20 * file_bytes(make(100)))
    random = Random(0)
    for _ in range(10_000):
        since = store.epoch
        fresh = make(min(int(random.paretovariate(0.7)), 10_000), random.choice([50, 100, 400]), source_id="a")
        entry = store.acquire(fresh.key, fresh.token_ids) or store.insert(fresh, pin=True, since=since)
        assert entry.payload.data[:6] == fresh.payload.data[:6]  # type: ignore[attr-defined]
        if random.random() < 0.002:
            store.invalidate(source_id="a")
        store.release(entry)
        stats = store.stats()
        assert stats.held_bytes <= stats.budget_bytes
        assert stats.disk_bytes <= stats.disk_budget_bytes
        assert stats.pinned == stats.lent_bytes == 0
    store.flush()
    store.check_integrity()
    stats = store.stats()
    assert stats.hits + stats.misses == 10_000
    assert stats.inserts == stats.entries + stats.evictions + stats.invalidated
    store.close()
