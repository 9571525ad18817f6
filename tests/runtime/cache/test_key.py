"""Keys, recipes and entries."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from hypic_agents.core import Scope
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import RunningDigest, SegmentKey, build_recipe, digest_ids, narrowest

KEY = SegmentKey.of((1, 2, 3), model="m", recipe="r", scope=Scope("t"))


@dataclass
class Bytes:
    nbytes: int


def test_equal_parts_give_equal_keys() -> None:
    same = SegmentKey.of([1, 2, 3], model="m", recipe="r", scope=Scope("t"))
    assert (same, hash(same), same.num_tokens) == (KEY, hash(KEY), 3)


@pytest.mark.parametrize(
    "changed",
    [
        SegmentKey.of((1, 2, 4), model="m", recipe="r", scope=Scope("t")),
        SegmentKey.of((1, 2), model="m", recipe="r", scope=Scope("t")),
        replace(KEY, model="n"),
        replace(KEY, recipe="s"),
        replace(KEY, scope=Scope("u")),
        replace(KEY, scope=Scope("t", frozenset({"g"}))),
    ],
    ids=["ids", "length", "model", "recipe", "tenant", "groups"],
)
def test_every_part_separates_keys(changed: SegmentKey) -> None:
    assert changed != KEY


def test_digest_is_pinned_because_files_outlive_processes() -> None:
    assert digest_ids(()) == "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
    assert digest_ids((1, 2, 300_000)) == "09ee191900ccbf3029b9fdc0d69f748a9581d3b6570d40d8c0462e8057e0005a"
    assert digest_ids((1, 2)) != digest_ids((2, 1))


@pytest.mark.parametrize("cuts", [(), (0,), (2,), (1, 1, 4)])
def test_a_running_digest_is_that_of_all_so_far(cuts: tuple[int, ...]) -> None:
    ids = (5, 6, 300_000, 7, 8)
    running = RunningDigest()
    for start, end in zip((0, *cuts), (*cuts, 5), strict=True):
        assert running.extend(ids[start:end]) == digest_ids(ids[:end])


HR, LEGAL, BOTH = (Scope("t", frozenset(groups)) for groups in (("hr",), ("legal",), ("hr", "legal")))


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        ([Scope("t")], Scope("t")),
        ([Scope("t"), Scope("t")], Scope("t")),
        ([Scope("t"), HR], HR),
        ([HR, Scope("t"), HR], HR),
        ([HR, LEGAL], None),
        ([HR, BOTH], None),
        ([Scope("t"), Scope("u")], None),
        ([HR, Scope("t"), Scope("u")], None),
        ([], None),
    ],
)
def test_what_several_texts_shaped_is_for_who_may_see_each(scopes: list[Scope], expected: Scope | None) -> None:
    assert narrowest(scopes) == narrowest(scopes[::-1]) == expected


def test_recipe_does_not_depend_on_the_order_of_its_fields() -> None:
    assert build_recipe(head_seam=8, tail_seam=2) == build_recipe(tail_seam=2, head_seam=8)
    assert build_recipe(head_seam=8, tail_seam=2) == "head_seam=8,tail_seam=2,prefix="


def test_recipe_separates_values_types_and_prefixes() -> None:
    recipes = [
        build_recipe(),
        build_recipe(a=1),
        build_recipe(a="1"),
        build_recipe(a=True),
        build_recipe(a="1,b=2"),
        build_recipe(a=1, b=2),
        build_recipe(a=1, prefix=digest_ids((7,))),
        build_recipe(a=1, prefix=digest_ids((8,))),
    ]
    assert len(set(recipes)) == len(recipes)


def test_entry_reads_its_size_once_and_compares_by_identity() -> None:
    payload = Bytes(5)
    entry = SegmentEntry(KEY, (1, 2, 3), payload, source_id="a", version="1", depends_on=(("sys", "2"),))
    payload.nbytes = 6
    assert entry.nbytes == 5
    assert entry.sources == (("a", "1"), ("sys", "2"))
    assert entry != SegmentEntry(KEY, (1, 2, 3), payload, source_id="a", version="1")


def test_entry_rejects_ids_that_cannot_be_its_keys() -> None:
    with pytest.raises(ValueError, match="2 token ids under a key of 3"):
        SegmentEntry(KEY, (1, 2), Bytes(1))
    with pytest.raises(ValueError, match="-1 bytes"):
        SegmentEntry(KEY, (1, 2, 3), Bytes(-1))


def test_the_store_does_not_import_torch() -> None:
    code = "import sys, hypic_agents.runtime.cache.memory; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
