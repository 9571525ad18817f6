"""The disk tier: what it writes it finds again, in this process or another; what is damaged is a miss."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hypic_agents.core import Scope
from hypic_agents.errors import InvalidInput, StoreUnavailable
from hypic_agents.runtime.cache.admission import Admission
from hypic_agents.runtime.cache.disk import DiskTier
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.eviction import LRU
from hypic_agents.runtime.cache.folder import StoreFolder, open_folder
from hypic_agents.runtime.cache.invalidation import Invalidation
from hypic_agents.runtime.cache.record import entry_name
from hypic_agents.runtime.cache.rows import row_sum
from tests.runtime.cache.blobs import Blob, file_bytes, make, open_tier, same


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[DiskTier]:
    tier = open_tier(tmp_path)
    yield tier
    tier.check_integrity()
    tier.close()


def path_of(tier: StoreFolder, entry: SegmentEntry) -> Path:
    return tier.root / "segments" / f"{entry_name(entry.key)}.safetensors"


def put(tier: DiskTier, *entries: SegmentEntry) -> None:
    for entry in entries:
        assert tier.write(entry, tier.position) == "written"


def has(tier: DiskTier, entry: SegmentEntry) -> bool:
    return same(tier.read(entry.key, entry.token_ids), entry)


def test_written_entries_are_read_again_also_by_others(tier: DiskTier, tmp_path: Path) -> None:
    scope = Scope("ü", frozenset({"x", "y"}))
    entry = make(1, source_id="a", version="2", scope=scope, depends_on=(("sys", "1"),))
    assert tier.read(entry.key, entry.token_ids) is None
    put(tier, entry)
    assert has(tier, entry)
    other = open_tier(tmp_path)
    assert has(other, entry)
    assert other.write(entry, other.position) == "present"
    other.close()


def test_files_are_private(tier: DiskTier) -> None:
    put(tier, make(1))
    for path in tier.root.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_everything_in_the_key_separates(tier: DiskTier) -> None:
    entry = make(1)
    put(tier, entry)
    for changed in (
        replace(entry.key, model="n"),
        replace(entry.key, recipe="s"),
        replace(entry.key, scope=Scope("u")),
        replace(entry.key, scope=Scope("default", frozenset({"g"}))),
    ):
        assert tier.read(changed, entry.token_ids) is None
    assert tier.read(entry.key, (2,)) is None
    assert tier.damaged == 0


def test_colliding_digests_never_serve_the_other_segment(tier: DiskTier) -> None:
    entry = make(1)
    other = SegmentEntry(entry.key, (2,), Blob(b"x"))
    put(tier, entry)
    assert tier.write(other, tier.position) == "present"
    assert tier.read(other.key, (2,)) is None
    assert has(tier, entry)


def test_the_budget_holds_and_the_least_recently_used_leaves(tmp_path: Path) -> None:
    size = file_bytes(make(100_000))
    tier = open_tier(tmp_path, 3 * size, eviction=LRU())
    a, b, c, d = (make(100_000 + i) for i in range(4))
    put(tier, a, b, c)
    assert has(tier, a)
    put(tier, d)
    assert [tier.contains(entry.key) for entry in (a, b, c, d)] == [True, False, True, True]
    assert tier.held_bytes() == 3 * size == sum(p.stat().st_size for p in tier.root.rglob("*.safetensors"))
    assert [(gone.name, gone.reason) for gone in tier.departures()] == [(entry_name(b.key), "evicted")]
    tier.check_integrity()
    tier.close()
    smaller = open_tier(tmp_path, size)
    assert smaller.num_entries() == 1
    assert smaller.evict(1) == size
    smaller.close()


def test_what_can_never_fit_evicts_nothing(tmp_path: Path) -> None:
    tier = open_tier(tmp_path, file_bytes(make(1)))
    put(tier, make(1))
    assert tier.write(make(2, 500), tier.position) == "refused"
    assert tier.num_entries() == 1
    tier.close()
    with pytest.raises(InvalidInput, match="budget_bytes=-1"):
        open_tier(tmp_path, -1)


def test_second_touch_defers_only_under_pressure(tmp_path: Path) -> None:
    tier = open_tier(tmp_path, file_bytes(make(1)), admission=Admission(second_touch=True))
    put(tier, make(1))
    assert tier.write(make(2), tier.position) == "deferred"
    assert tier.write(make(2), tier.position, uses=2) == "written"
    assert [tier.contains(make(token).key) for token in (1, 2)] == [False, True]
    tier.close()


def test_invalidation_is_seen_by_all_and_refuses_what_it_overtook(tier: DiskTier, tmp_path: Path) -> None:
    other = open_tier(tmp_path)
    old, built_on, apart = make(1, source_id="a", version="1"), make(2, depends_on=(("a", "1"),)), make(3)
    put(tier, old, built_on, apart)
    position = other.position
    names = tier.invalidate(Invalidation(source_id="a", version_before="2"))
    assert names == {entry_name(old.key), entry_name(built_on.key)}
    assert not path_of(tier, old).exists()
    assert [has(other, entry) for entry in (old, built_on, apart)] == [False, False, True]
    assert other.later(position) == [Invalidation(source_id="a", version_before="2")]
    assert other.write(old, position) == "overtaken"
    put(other, make(1, source_id="a", version="2"))
    other.close()


def test_an_invalidation_while_a_file_is_written_is_not_missed(tier: DiskTier, tmp_path: Path) -> None:
    other = open_tier(tmp_path)
    entry = make(1, source_id="a")
    layout_pieces = type(tier._files).draft

    def draft_that_is_overtaken(files: object) -> object:
        made = layout_pieces(files)  # type: ignore[arg-type]
        write = made.write
        made.write = lambda pieces: (write(pieces), other.invalidate(Invalidation(source_id="a")))  # type: ignore[method-assign]
        return made

    tier._files.draft = lambda: draft_that_is_overtaken(tier._files)  # type: ignore[method-assign,assignment]
    assert tier.write(entry, tier.position) == "overtaken"
    assert list(tier._files.names()) == []
    other.close()


def test_a_forgotten_log_trusts_nothing(tier: DiskTier) -> None:
    position = tier.position
    for i in range(1_002):
        tier.invalidate(Invalidation(source_id=f"unrelated-{i}"))
    assert tier.later(position) is None
    assert tier.write(make(1), position) == "overtaken"


def test_every_flipped_byte_of_a_segment_is_a_miss_with_a_warning(
    tier: DiskTier, caplog: pytest.LogCaptureFixture
) -> None:
    entry = make(1, 40)
    put(tier, entry)
    path = path_of(tier, entry)
    whole = path.read_bytes()
    rng = random.Random(0)
    places = sorted({*range(0, len(whole), 23), len(whole) - 1})
    for count, at in enumerate(places, 1):
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        assert tier.read(entry.key, entry.token_ids) is None
        assert tier.damaged == count
        assert not path.exists()
        put(tier, entry)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == len(places)


@pytest.mark.slow
def test_three_hundred_flipped_bytes_over_all_files_never_make_a_wrong_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One flip at a time, in any file: a segment, the index, its log. What is found is what was written."""
    entries = [make(i, 200, source_id=f"s{i % 3}", version=str(i)) for i in range(12)]
    rng = random.Random(0)
    root = tmp_path / "store"
    tier = open_tier(root)
    put(tier, *entries)
    whole = tmp_path / "whole"
    shutil.copytree(root, whole)  # while the store is open: the newest rows are in the log
    tier.close()
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size)
    assert {path.suffix for path in files} == {".safetensors", ".sqlite", ".sqlite-wal", ".sqlite-shm"}
    misses = 0
    for _ in range(300):
        shutil.rmtree(root)
        shutil.copytree(whole, root)
        by_kind = rng.choice(sorted({path.suffix for path in files}))
        path = root / rng.choice([path for path in files if path.suffix == by_kind])
        raw = bytearray(path.read_bytes())
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        path.write_bytes(raw)
        caplog.clear()
        again = open_tier(root)
        found = [again.read(entry.key, entry.token_ids) for entry in entries]
        missed = [each for each in found if each is None]
        assert all(each is None or same(each, entry) for each, entry in zip(found, entries, strict=True))
        assert len(missed) == 1 or by_kind != ".safetensors"
        # Rows that a damaged log has lost take their files with them; whatever else is dropped is reported.
        assert not missed or by_kind == ".sqlite-wal" or caplog.records
        misses += bool(missed)
        again.invalidate(Invalidation(source_id="s1"))
        assert not any(again.read(entry.key, entry.token_ids) for entry in entries if entry.source_id == "s1")
        again.check_integrity()
        again.close()
    assert misses > 60


@pytest.mark.parametrize("how", ["cut", "emptied", "deleted", "swapped"])
def test_other_damage_is_a_miss_too(tier: DiskTier, how: str) -> None:
    entry, other = make(1), make(2)
    put(tier, entry, other)
    path = path_of(tier, entry)
    match how:
        case "cut":
            path.write_bytes(path.read_bytes()[:-1])
        case "emptied":
            path.write_bytes(b"")
        case "deleted":
            path.unlink()
        case "swapped":
            path.write_bytes(path_of(tier, other).read_bytes())
    assert tier.read(entry.key, entry.token_ids) is None
    if how == "swapped":
        tier.remove({entry_name(entry.key)}, "swapped")
    assert not tier.contains(entry.key)
    put(tier, entry)
    assert has(tier, entry)


def test_verify_names_what_is_damaged(tier: DiskTier) -> None:
    good, bad = make(1), make(2)
    put(tier, good, bad)
    raw = bytearray(path_of(tier, bad).read_bytes())
    raw[-40] ^= 1
    path_of(tier, bad).write_bytes(raw)
    found = {row.name: problem for row, problem in tier.verify(remove=True)}
    assert found == {entry_name(good.key): "", entry_name(bad.key): "the checksum does not match"}
    assert [row.name for row in tier.rows()] == [entry_name(good.key)]


def test_what_a_crash_left_is_removed_at_the_next_opening(tmp_path: Path) -> None:
    tier = open_tier(tmp_path)
    put(tier, make(1))
    (tmp_path / "segments" / "dead.draft").write_bytes(b"half")
    (tmp_path / "segments" / f"{'0' * 40}.safetensors").write_bytes(b"nobody knows me")
    with tier._files.draft() as alive:
        open_tier(tmp_path).close()
        assert [path.name for path in (tmp_path / "segments").glob("*.draft")] == [alive.name]
        assert len(list(tier._files.names())) == 1
    tier.check_integrity()
    tier.close()


@pytest.mark.parametrize("part", ["index.sqlite", "index.sqlite-wal"])
def test_a_damaged_index_makes_misses_at_worst(tmp_path: Path, part: str) -> None:
    entries = [make(i, source_id="a") for i in range(20)]
    rng = random.Random(part)
    for _ in range(12):
        tier = open_tier(tmp_path)
        put(tier, *[entry for entry in entries if not tier.contains(entry.key)])
        if part == "index.sqlite":
            tier.close()
        path = tmp_path / part
        raw = bytearray(path.read_bytes())
        for at in rng.sample(range(len(raw)), 3):
            raw[at] ^= 1 << rng.randrange(8)
        tier.close()
        path.write_bytes(raw)
        again = open_tier(tmp_path)
        for entry in entries:
            found = again.read(entry.key, entry.token_ids)
            assert found is None or same(found, entry)
        assert len(again.invalidate(Invalidation(source_id="a"))) <= 20
        assert not any(again.read(entry.key, entry.token_ids) for entry in entries)
        again.check_integrity()
        again.close()


def test_an_index_that_breaks_while_open_is_made_anew_from_the_files(tier: DiskTier, tmp_path: Path) -> None:
    entries = [make(i) for i in range(5)]
    put(tier, *entries)
    other = open_tier(tmp_path)
    position = other.position
    other.close()
    for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "index.sqlite").write_bytes(b"no database at all" * 300)
    assert all(has(tier, entry) for entry in entries)
    assert tier.later(position) is None
    put(tier, make(9))


@pytest.mark.parametrize("left", [0, 100, 4096, 5000])
def test_an_index_that_is_cut_or_gone_is_made_anew(tmp_path: Path, left: int) -> None:
    tier = open_tier(tmp_path)
    put(tier, *[make(i) for i in range(9)])
    tier.close()
    raw = (tmp_path / "index.sqlite").read_bytes()
    (tmp_path / "index.sqlite").write_bytes(raw[:left])
    again = open_tier(tmp_path)
    assert all(has(again, make(i)) for i in range(9))
    again.check_integrity()
    again.close()


def test_a_file_that_was_published_by_a_killed_writer_does_not_outlive_an_invalidation(tier: DiskTier) -> None:
    """Killed between the renaming and the end of the transaction: the row still says that it is being written."""
    entry = make(1, source_id="a")
    put(tier, entry)
    with sqlite3.connect(tier.root / "index.sqlite") as db:
        (row,) = tier.rows()
        draft = replace(row, draft="gone.draft")
        assert draft.info is not None
        checksum = row_sum(draft.name, draft.draft, draft.file_bytes, draft.info.to_json())
        db.execute("UPDATE entries SET draft = 'gone.draft', sum = ?", (checksum,))
    db.close()
    assert not has(tier, entry)
    tier.invalidate(Invalidation(source_id="a"))
    assert not path_of(tier, entry).exists()


def test_a_row_that_changed_is_not_trusted(tier: DiskTier, tmp_path: Path) -> None:
    entry = make(1, source_id="secret")
    put(tier, entry)
    with sqlite3.connect(tmp_path / "index.sqlite") as db:
        db.execute("UPDATE entries SET info = replace(info, 'secret', 'sEcret')")
    db.close()
    tier.invalidate(Invalidation(source_id="secret"))
    assert not tier.contains(entry.key)
    assert not path_of(tier, entry).exists()


def test_a_full_disk_is_a_warning(tier: DiskTier, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        assert tier.write(make(1), tier.position) == "failed"
    assert (tier.held_bytes(), list(tier._files.drafts())) == (0, [])
    put(tier, make(1))


def test_directories_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable, match="cannot use"):
        open_tier(tmp_path / "file")
    with pytest.raises(InvalidInput, match="no store in"):
        open_folder(tmp_path / "absent")
    tier = open_tier(tmp_path / "store")
    tier.close()
    with pytest.raises(StoreUnavailable, match="cannot be used now"):
        tier.invalidate(Invalidation(source_id="a"))
    assert tier.read(make(1).key, (1,)) is None
    assert tier.write(make(1), (0, 0)) == "failed"
