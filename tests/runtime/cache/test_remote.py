"""A remote place under a local store: what machines share, and what its faults cost."""

from __future__ import annotations

import logging
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Barrier, BoundedSemaphore, Thread
from typing import Any

import fsspec
import pytest

from hypic_agents.core import Scope
from hypic_agents.errors import InvalidInput, StoreUnavailable
from hypic_agents.runtime.cache.breaker import Breaker, Pending
from hypic_agents.runtime.cache.bucket import Bucket, open_bucket
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.lanes import LANES, get_all
from hypic_agents.runtime.cache.memory import MemoryStore
from hypic_agents.runtime.cache.record import entry_name
from hypic_agents.runtime.cache.remote_store import RemoteStore
from hypic_agents.runtime.cache.tiered import TieredStore
from tests.runtime.cache.blobs import Blob, make, open_tier, same
from tests.runtime.cache.places import Clock, Machine, new_place


@pytest.fixture
def place() -> tuple[Any, str]:
    return new_place()


def finds(store: RemoteStore, entry: SegmentEntry) -> bool:
    found = store.acquire(entry.key, entry.token_ids)
    if found is not None:
        store.release(found)
    return same(found, entry)


def put(machine: Machine, *entries: SegmentEntry) -> None:
    for entry in entries:
        machine.store.insert(entry)
    machine.store.flush()


def objects(place: tuple[Any, str], folder: str = "segments") -> list[str]:
    try:
        return list(place[0].ls(f"{place[1]}/{folder}", detail=False))
    except FileNotFoundError:
        return []


def test_another_machine_hits_at_once_and_keeps_it_locally(place: tuple[Any, str]) -> None:
    entry = make(1, source_id="a", version="2", scope=Scope("ü", frozenset({"g"})), depends_on=(("sys", "1"),))
    one, two = Machine(place), Machine(place)
    put(one, entry)
    assert finds(two.store, entry)
    two.fs.fail = lambda name: True
    assert finds(two.store, entry)
    stats = two.store.stats()
    assert (stats.hits, stats.misses, stats.remote_hits, stats.entries) == (2, 0, 1, 1)
    assert not finds(two.store, make(1, scope=Scope("other")))
    assert not finds(two.store, SegmentEntry(entry.key, (2,), Blob(b"x")))


def test_colliding_digests_never_serve_the_other_segment(place: tuple[Any, str]) -> None:
    one, two = Machine(place), Machine(place)
    entry = make(1)
    put(one, entry)
    assert two.store.acquire(entry.key, (2,)) is None
    assert finds(two.store, entry)


def test_objects_are_files_of_the_disks_format(place: tuple[Any, str]) -> None:
    from safetensors.torch import load

    one = Machine(place)
    put(one, make(1))
    (path,) = objects(place)
    assert path.endswith(f"{entry_name(make(1).key)}.safetensors")
    assert set(load(place[0].cat_file(path))) == {"0.data", "token_ids", "checksum"}


def test_writing_waits_for_nobody(place: tuple[Any, str]) -> None:
    one = Machine(place)
    one.fs.hang = {"pipe_file"}
    assert one.store.insert(make(1)) is not None
    assert finds(one.store, make(1))
    assert one.store.stats().remote_pending_bytes == 100
    one.fs.go_on.set()
    one.store.flush()
    assert len(objects(place)) == 1


def test_the_queue_is_bounded(place: tuple[Any, str]) -> None:
    one = Machine(place, max_pending_bytes=250)
    one.fs.hang = {"exists"}
    for token in range(5):
        one.store.insert(make(token))
    assert one.store.stats().remote_pending_bytes == 200
    assert one.store.stats().remote_dropped == 3
    one.fs.go_on.set()
    one.store.flush()
    assert len(objects(place)) == 2
    assert finds(one.store, make(4))  # used again, offered again
    one.store.flush()
    assert len(objects(place)) == 3


def test_nothing_is_written_twice(place: tuple[Any, str]) -> None:
    one, two = Machine(place), Machine(place)
    for machine in (one, two):
        put(machine, make(1))
        assert finds(machine.store, make(1))
        machine.store.flush()
    assert [machine.fs.calls.count("pipe_file") for machine in (one, two)] == [1, 0]


def test_checkpoints_of_chats_stay_local_until_they_are_wanted_often(place: tuple[Any, str]) -> None:
    one = Machine(place)
    plain = make(1)
    entry = SegmentEntry(replace(plain.key, recipe="kind='prefix'"), plain.token_ids, plain.payload)
    put(one, entry)
    assert finds(one.store, entry)
    one.store.flush()
    assert objects(place) == []
    assert finds(one.store, entry)
    one.store.flush()
    assert len(objects(place)) == 1


@pytest.mark.parametrize("conditions", [{"source_id": "a", "version_before": "2"}, {"tenant": "t"}, {"group": "g"}])
def test_what_one_machine_invalidates_no_other_reads(place: tuple[Any, str], conditions: dict[str, str]) -> None:
    one, two = Machine(place), Machine(place)
    old = make(1, source_id="a", version="1", scope=Scope("t", frozenset({"g"})))
    apart = make(2, source_id="b")
    put(one, old, apart)
    assert one.store.invalidate(**conditions) == 1
    assert not finds(one.store, old)
    assert [finds(two.store, old), finds(two.store, apart)] == [False, True]
    late = Machine(place)
    assert [finds(late.store, old), finds(late.store, apart)] == [False, True]


def test_what_is_built_anew_after_an_invalidation_is_shared_again(place: tuple[Any, str]) -> None:
    one, two = Machine(place), Machine(place)
    put(one, make(1, source_id="a"))
    one.store.invalidate(source_id="a")
    assert not finds(one.store, make(1))
    fresh = make(1, source_id="a", build_s=7.0)
    put(one, fresh)
    two.clock.time += 10
    assert finds(two.store, fresh)
    assert finds(Machine(place).store, fresh)


def test_other_machines_notice_within_seconds(place: tuple[Any, str]) -> None:
    one, two = Machine(place), Machine(place)
    old = make(1, source_id="a")
    put(one, old)
    assert finds(two.store, old)
    since = two.store.epoch
    one.store.invalidate(source_id="a")
    assert finds(two.store, old)  # its own copy, for as long as it does not ask
    two.clock.time += 5
    assert not finds(two.store, old)
    assert two.store.epoch == since + 1
    two.store.insert(old, since=since)  # built meanwhile
    two.store.flush()
    assert not finds(two.store, old)


def test_an_upload_that_an_invalidation_overtakes_is_not_served(place: tuple[Any, str]) -> None:
    one, two, late = (Machine(place) for _ in range(3))
    old = make(1, source_id="a")
    one.fs.hang = {"pipe_file"}
    one.store.insert(old)
    two.store.invalidate(source_id="a")
    one.fs.go_on.set()
    one.store.flush()
    assert len(objects(place)) == 1
    assert not finds(late.store, old)


def test_an_invalidation_while_a_segment_is_read(place: tuple[Any, str]) -> None:
    one, two = Machine(place), Machine(place)
    old = make(1, source_id="a")
    put(one, old)
    read = two.tier.read

    def read_and_invalidate(*args: Any) -> Any:
        found = read(*args)
        assert found[0] is not None
        two.store.invalidate(source_id="a")
        return found

    two.tier.read = read_and_invalidate  # type: ignore[method-assign]
    assert not finds(two.store, old)
    two.tier.read = read  # type: ignore[method-assign]
    assert not finds(two.store, old)
    assert two.store.stats().pinned == 0


def test_an_invalidation_that_cannot_be_told_is_raised_and_told_later(place: tuple[Any, str]) -> None:
    one, two = Machine(place), Machine(place)
    old = make(1, source_id="a")
    put(one, old)
    one.fs.fail = lambda name: name == "pipe_file"
    with pytest.raises(StoreUnavailable, match="other machines cannot be told"):
        one.store.invalidate(source_id="a")
    assert not finds(one.store, old)
    one.fs.fail = lambda name: False
    assert not finds(one.store, old)
    one.clock.time += 20
    assert one.store.epoch == 1
    assert not finds(two.store, old)
    assert len(objects(place, "invalidations")) == 1


@pytest.mark.parametrize("how", ["fail", "hang"])
def test_a_machine_that_cannot_write_still_hits_and_hears(place: tuple[Any, str], how: str) -> None:
    one = Machine(place)
    two = Machine(place, timeout_s=0.2) if how == "hang" else Machine(place)
    old, apart = make(1, source_id="a"), make(2)
    put(one, old, apart)
    if how == "hang":
        two.fs.hang = {"pipe_file"}
    else:
        two.fs.fail = lambda name: name == "pipe_file"
    with pytest.raises(StoreUnavailable, match="other machines cannot be told"):
        two.store.invalidate(source_id="x")
    for _ in range(17):  # each tries to write again
        two.clock.time += 5
        two.store.epoch  # noqa: B018
    put(two, make(3))
    assert finds(two.store, old)
    assert finds(two.store, apart)
    assert two.store.stats().remote_hits == 2
    one.store.invalidate(source_id="a")
    two.clock.time += 5
    assert [finds(two.store, old), finds(two.store, apart)] == [False, True]
    assert len(objects(place, "invalidations")) == 1
    two.store.flush()
    two.fs.fail = lambda name: False
    two.fs.go_on.set()
    until = time.monotonic() + 10
    while len(objects(place, "invalidations")) < 2 and time.monotonic() < until:
        two.clock.time += 200  # past any pause: calls that hung hold their slots until they have ended
        two.store.epoch  # noqa: B018
        time.sleep(0.01)
    assert len(objects(place, "invalidations")) == 2


def test_an_own_invalidation_is_not_applied_again_while_it_is_told(place: tuple[Any, str]) -> None:
    one = Machine(place)
    publish = one.tier.publish

    def follow_then_publish(number: int) -> None:
        one.clock.time += 5
        one.store.epoch  # noqa: B018  another thread asks for calls just now
        publish(number)

    one.tier.publish = follow_then_publish  # type: ignore[method-assign]
    one.store.invalidate(source_id="a")
    since = one.store.epoch
    fresh = make(1, source_id="a")
    put(one, fresh)
    one.clock.time += 5
    assert one.store.epoch == since
    one.fs.fail = lambda name: True
    assert finds(one.store, fresh)


def test_a_local_store_that_cannot_invalidate_changes_nothing(
    place: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Machine(place, local=TieredStore(MemoryStore(1000), open_tier(tmp_path)))
    old = make(1, source_id="a")
    put(one, old)

    def gone(operation: object) -> None:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(one.local._disk._changes, "do", gone)
        with pytest.raises(StoreUnavailable, match="gone"):
            one.store.invalidate(source_id="a")
    assert finds(Machine(place).store, old)
    one.store.close()


def test_a_machine_that_was_off_drops_what_was_invalidated_meanwhile(place: tuple[Any, str], tmp_path: Path) -> None:
    applied = tmp_path / "remote-applied.json"

    def start() -> Machine:
        return Machine(place, local=TieredStore(MemoryStore(1000), open_tier(tmp_path)), applied_path=applied)

    old, apart = make(1, source_id="a"), make(2)
    one = start()
    put(one, old, apart)
    one.store.close()
    Machine(place).store.invalidate(source_id="a")
    one = start()
    assert [finds(one.store, old), finds(one.store, apart)] == [False, True]
    put(one, old)
    one.store.close()
    one = start()
    one.fs.fail = lambda name: True
    assert finds(one.store, old)  # applied once, not at every start
    one.store.close()
    applied.write_text("{")
    one = start()
    assert not one.local._disk.contains(old.key)
    one.store.close()


@pytest.mark.parametrize("how", ["flipped", "cut", "emptied", "swapped"])
def test_damaged_objects_are_a_miss_with_a_warning_and_are_replaced(
    place: tuple[Any, str], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = Machine(place)
    entry, other = make(1), make(2)
    put(one, entry, other)
    name = f"{place[1]}/segments/{entry_name(entry.key)}.safetensors"
    whole = place[0].cat_file(name)
    swapped = place[0].cat_file(f"{place[1]}/segments/{entry_name(other.key)}.safetensors")
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 4
    place[0].pipe_file(name, {"flipped": bytes(flipped), "cut": whole[:-9], "emptied": b"", "swapped": swapped}[how])
    two = Machine(place)
    assert not finds(two.store, entry)
    if how != "swapped":
        assert two.store.stats().damaged == 1
        assert any("is damaged and not used" in record.message for record in caplog.records)
        put(two, entry)
        assert finds(Machine(place).store, entry)


def test_every_flipped_byte_is_a_miss(place: tuple[Any, str]) -> None:
    entry = make(1, 40, source_id="a")
    one, two = Machine(place), Machine(place)
    put(one, entry)
    one.store.invalidate(source_id="b")  # objects written from now on carry a known call
    put(one, replace_entry(entry))
    sizes = [len(place[0].cat_file(path)) for path in objects(place)]
    rng = random.Random(0)
    for at in range(0, max(sizes), 3):

        def flip(raw: bytes, at: int = at) -> bytes:
            broken = bytearray(raw)
            broken[at % len(broken)] ^= 1 << rng.randrange(8)
            return bytes(broken)

        two.fs.spoil = flip
        assert not finds(two.store, entry)
        assert not finds(two.store, replace_entry(entry))
    assert two.store.stats().damaged == 2 * len(range(0, max(sizes), 3))
    assert two.store.stats().remote_failures == 0


def replace_entry(entry: SegmentEntry) -> SegmentEntry:
    return make(entry.token_ids[0] + 1, entry.nbytes, source_id=entry.source_id)


def test_a_damaged_invalidation_covers_everything(place: tuple[Any, str], tmp_path: Path) -> None:
    one, two = Machine(place), Machine(place, local=TieredStore(MemoryStore(1000), open_tier(tmp_path)))
    entries = [make(1, source_id="a"), make(2, scope=Scope("t"))]
    put(one, *entries)
    assert all(finds(two.store, entry) for entry in entries)
    two.store.flush()
    one.store.invalidate(source_id="a")
    (path,) = objects(place, "invalidations")
    place[0].pipe_file(path, place[0].cat_file(path).replace(b"source_id", b"sOurce_id"))
    place[0].pipe_file(f"{place[1]}/invalidations/readme.txt", b"somebody else's")
    two.clock.time += 5
    assert not any(finds(two.store, entry) for entry in entries)
    put(two, *entries)
    assert all(finds(two.store, entry) for entry in entries)
    late = Machine(place)
    assert all(finds(late.store, entry) for entry in entries)  # what two built anew is known to have outlived that call
    two.store.close()


@pytest.mark.parametrize("disk", [False, True])
def test_a_damaged_invalidation_covers_what_is_being_built(place: tuple[Any, str], tmp_path: Path, disk: bool) -> None:
    """Also where nothing is kept."""
    one = Machine(place)
    two = Machine(place, local=TieredStore(MemoryStore(1000), open_tier(tmp_path)) if disk else None)
    since = two.store.epoch
    one.store.invalidate(source_id="a")
    (path,) = objects(place, "invalidations")
    place[0].pipe_file(path, b"{}")
    two.clock.time += 5
    assert two.store.epoch == since + 1
    late = make(1)
    two.store.insert(late, since=since)
    two.store.flush()
    assert not finds(two.store, late)
    put(two, late)
    assert finds(two.store, late)
    two.store.close()


@pytest.mark.parametrize("operation", ["cat_file", "ls", "exists", "pipe_file", "cat"])
def test_failures_cost_a_miss_and_a_warning_then_a_pause(
    place: tuple[Any, str], operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Machine(place), Machine(place)
    put(one, make(1))
    one.store.invalidate(source_id="x")
    two.clock.time += 5
    two.fs.fail = lambda name: name == operation
    two.store.epoch  # noqa: B018  asks for calls
    finds(two.store, make(1))
    put(two, make(2))
    assert two.store.stats().remote_failures == 1
    assert any("the remote store fails" in record.message for record in caplog.records)
    asked = len(two.fs.calls)
    assert not finds(two.store, make(3))
    put(two, make(3))
    assert finds(two.store, make(3))
    # Reading pauses or writing does, whichever failed: a place may let itself be read only.
    reads, writes = {"cat_file", "invalidate_cache", "ls", "cat"}, {"exists", "pipe_file"}
    assert set(two.fs.calls[asked:]) <= (reads if operation in writes else writes)
    two.fs.fail = lambda name: False
    two.clock.time += 5
    assert finds(two.store, make(1))
    two.store.check_integrity()


def test_a_place_that_hangs_holds_a_request_up_once(place: tuple[Any, str]) -> None:
    one = Machine(place)
    put(one, make(1))
    two = Machine(place, timeout_s=0.05)
    two.fs.hang = {"cat_file"}
    started = time.monotonic()
    assert not any(finds(two.store, make(1)) for _ in range(50))
    assert time.monotonic() - started < 5
    assert two.store.stats().remote_failures == 1
    two.fs.go_on.set()
    two.clock.time += 5
    assert finds(two.store, make(1))


def test_a_place_that_hangs_takes_no_threads_from_another(place: tuple[Any, str]) -> None:
    one, two = Machine(place), Machine(new_place(), timeout_s=0.05)
    put(one, make(1))
    two.fs.hang = {"cat_file"}
    for _ in range(24):
        assert not finds(two.store, make(1))
        two.clock.time += 5
    assert two.fs.calls.count("cat_file") == 16
    assert finds(Machine(place).store, make(1))
    two.fs.go_on.set()


def find_all(store: RemoteStore, entries: list[SegmentEntry]) -> list[bool]:
    held = store.acquire_all([(entry.key, entry.token_ids) for entry in entries])
    for found in filter(None, held):
        store.release(found)
    return [same(found, entry) for found, entry in zip(held, entries, strict=True)]


def test_the_segments_of_a_prompt_are_looked_for_together(place: tuple[Any, str]) -> None:
    one, two = Machine(place), Machine(place)
    entries = [make(token) for token in range(20)]
    put(one, *entries[:12], *entries[14:])
    two.local.insert(entries[3])
    together = Barrier(LANES, timeout=10)
    get = two.tier._bucket.get

    def meet(name: str) -> bytearray | None:
        if not together.broken and len(met) < LANES:
            met.append(name)
            together.wait()
        return get(name)

    met: list[str] = []
    two.tier._bucket.get = meet  # type: ignore[method-assign]
    listings = two.fs.calls.count("ls")
    assert find_all(two.store, entries) == [token not in (12, 13) for token in range(20)]
    assert len(met) == LANES, "as many as there are lanes were under way at once"
    assert two.fs.calls.count("ls") == listings + 1, "and other machines' calls are asked for once"
    assert two.store.stats().remote_hits == 17
    assert two.store.stats().pinned == 0
    assert find_all(two.store, []) == []


def test_one_object_that_fails_leaves_the_others(place: tuple[Any, str], caplog: pytest.LogCaptureFixture) -> None:
    one, two = Machine(place), Machine(place)
    entries = [make(token) for token in range(5)]
    put(one, *entries)
    get = two.tier._bucket.get

    def cut(name: str) -> bytearray | None:
        if entry_name(entries[2].key) in name:
            raise ConnectionError("cut off")
        return get(name)

    two.tier._bucket.get = cut  # type: ignore[method-assign]
    assert find_all(two.store, entries) == [True, True, False, True, True]
    assert two.store.stats().remote_failures == 1
    assert "ConnectionError: cut off" in caplog.text


def test_a_place_that_hangs_holds_all_segments_of_a_request_up_once(place: tuple[Any, str]) -> None:
    one, two = Machine(place), Machine(place, timeout_s=0.05)
    entries = [make(token) for token in range(40)]
    put(one, *entries)
    two.fs.hang = {"cat_file"}
    assert not any(find_all(two.store, entries))
    assert two.fs.calls.count("cat_file") == LANES
    assert two.store.stats().remote_failures == 1
    two.fs.go_on.set()


def test_what_was_found_is_given_back_when_the_rest_cannot_be_kept(
    place: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Machine(place), Machine(place)
    entries = [make(token) for token in range(3)]
    put(one, *entries)
    two.local.insert(entries[0])
    insert = two.local.insert

    def full(entry: SegmentEntry, **options: Any) -> SegmentEntry:
        if entry.key == entries[2].key:
            raise MemoryError
        return insert(entry, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(two.local, "insert", full)
    with pytest.raises(MemoryError):
        find_all(two.store, entries)
    assert two.store.stats().pinned == 0


def test_a_lane_is_waited_for_as_long_as_something_comes() -> None:
    def slow(name: str) -> bytearray:
        time.sleep(0.3)
        return bytearray(name.encode())

    names = [str(number) for number in range(8 * LANES)]
    found, problem = get_all(slow, names, BoundedSemaphore(16), within_s=2.0)
    assert problem is None
    assert found == {name: name.encode() for name in names}


def test_lanes_that_cannot_start_cost_only_what_is_theirs() -> None:
    class OneSlot(BoundedSemaphore):
        """Is not given back."""

        def release(self, n: int = 1) -> None:
            pass

    names = [str(number) for number in range(2 * LANES)]
    found, problem = get_all(lambda name: bytearray(name.encode()), names, OneSlot(1), within_s=10.0)
    assert isinstance(problem, TimeoutError)
    assert set(found) == {"0", str(LANES)}


def test_a_thread_that_does_not_start_leaves_room_for_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = BoundedSemaphore(1)

    def fail(self: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            Pending(list, slots)
    assert Pending(list, slots).result(30) == []


def test_the_breaker_pauses_longer_each_time() -> None:
    clock = Clock()
    breaker = Breaker(5.0, most_s=20.0, now=clock)
    for pause in (5.0, 10.0, 20.0, 20.0):
        assert breaker.allows()
        breaker.failed()
        clock.time += pause - 0.1
        assert not breaker.allows()
        clock.time += 0.2
    assert breaker.allows()
    assert not breaker.allows()  # one tries, the others wait for how it fares
    breaker.succeeded()
    assert breaker.allows()
    breaker.failed()
    clock.time += 5
    assert breaker.allows()


def test_plain_folders(tmp_path: Path) -> None:
    """Where a file can be seen half written, it gets its name once it is whole."""
    bucket = open_bucket(f"file://{tmp_path}/deep/er")
    assert isinstance(bucket, Bucket)
    assert (bucket.get("segments/a"), bucket.names("segments"), bucket.has("segments/a")) == (None, [], False)
    bucket.put("segments/a", b"1")
    bucket.put("segments/a", b"2")
    (tmp_path / "deep/er/segments/b.123.draft").write_bytes(b"half")
    assert bucket.get("segments/a") == b"2"
    assert bucket.names("segments") == ["segments/a"]
    assert bucket.get_all(["segments/a", "segments/gone"]) == {"segments/a": b"2"}
    assert sorted(path.name for path in (tmp_path / "deep/er/segments").iterdir()) == ["a", "b.123.draft"]
    fs = fsspec.filesystem("file")
    one, two = (Machine((fs, str(tmp_path / "shared"))) for _ in range(2))
    put(one, make(1, source_id="a"), make(2))
    assert finds(two.store, make(1, source_id="a"))
    one.store.invalidate(source_id="a")
    two.clock.time += 5
    assert [finds(two.store, make(1)), finds(two.store, make(2))] == [False, True]


def test_a_failed_write_leaves_no_draft(tmp_path: Path) -> None:
    one = Machine((fsspec.filesystem("file"), str(tmp_path)))
    one.fs.fail = lambda name: name == "mv"
    put(one, make(1))
    assert one.store.stats().remote_dropped == 1
    assert list((tmp_path / "segments").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("bucket/folder", "use a URL such as"),
        ("memory://", "use a URL such as"),
        ("nothing://x/y", "Protocol not known"),
    ],
)
def test_urls_that_cannot_be_used(url: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        open_bucket(url)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(fsspec.core, "url_to_fs", _needs_s3fs)
        with pytest.raises(InvalidInput, match=r"'s3' needs another package: Install s3fs"):
            open_bucket("s3://bucket/folder")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InvalidInput, match=r"hypic-agents\[remote\]"):
        open_bucket("memory://x")


def _needs_s3fs(url: str, **options: Any) -> None:
    raise ImportError("Install s3fs to access S3")


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "hypic_agents.store")
