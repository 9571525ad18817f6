"""The tables: shares against base rates, buckets of distance, and what each remedy adds to cheaper ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.quality.explain.breakdown import breakdown, cheapest, distance, labels, remedy_rows
from hypic_agents.quality.explain.places import FactPlace
from hypic_agents.quality.explain.remedies import Attempt
from hypic_agents.quality.statistics import wilson


def place(
    to_seam: int | None, to_live: int = 5, order: int = 1, segments: int = 8, source: str = "prose-1"
) -> FactPlace:
    return FactPlace(
        source, "document", "prose", order, segments, 90, True, position=9, to_seam=to_seam, to_live=to_live
    )


@pytest.mark.parametrize(
    ("places", "label"),
    [
        ([], "no segment needed"),
        ([place(0)], "0 to 7"),
        ([place(7)], "0 to 7"),
        ([place(8)], "8 to 15"),
        ([place(31), place(3)], "16 to 31"),
        ([place(63)], "32 to 63"),
        ([place(3), place(64)], "64 or more"),
        ([place(-2, to_live=0)], "live"),
        # In the tail seam: behind the head seam, yet live.
        ([place(70, to_live=0)], "live"),
        ([place(70, to_live=0), place(9)], "8 to 15"),
        ([place(None, to_live=0)], "live"),
        ([FactPlace("a", "document", "prose", 1, 8, 90, True), place(3)], "not found"),
    ],
)
def test_distance_is_that_of_the_farthest_composed_fact(places: list[FactPlace], label: str) -> None:
    assert distance(places) == label


@given(st.integers(1, 60), st.data())
def test_a_quarter_is_where_the_middle_of_the_segment_falls(segments: int, data: st.DataObject) -> None:
    order = data.draw(st.integers(1, segments))
    (quarter,) = labels("single", [place(3, order=order, segments=segments)])["order"]
    at = ("first quarter", "second quarter", "third quarter", "last quarter").index(quarter)
    assert at / 4 <= (order - 0.5) / segments < (at + 1) / 4


def test_a_question_counts_once_for_each_sort_of_segment_it_needs() -> None:
    marks = labels("two_hop", [place(3, order=1), place(9, order=2), place(70, order=8, source="prose-7")])
    assert marks["order"] == {"first quarter", "last quarter"}
    assert marks["needed"] == {"2"}
    assert marks["style"] == {"prose"}
    assert labels("not_stated", [])["needed"] == {"0"}
    assert labels("not_stated", [])["order"] == frozenset()


def test_rates_are_told_against_all_questions() -> None:
    marks = [labels("single", [place(3)])] * 6 + [labels("running", [place(70)])] * 2
    tables = breakdown(marks, {0, 6, 7})
    near, far = tables["distance"]
    assert (near["value"], near["questions"], near["changed"]) == ("0 to 7", 6, 1)
    assert (far["value"], far["questions"], far["changed"], far["rate"]) == ("64 or more", 2, 2, 1.0)
    assert near["question_share"] == 0.75
    assert near["changed_share"] == pytest.approx(1 / 3)
    assert far["lift"] == pytest.approx(8 / 3)
    assert near["lift"] == pytest.approx(8 / 18)
    assert far["rate_ci95"] == wilson(2, 2)
    assert [row["value"] for row in tables["task"]] == ["single", "running"]
    assert {row["lift"] for row in breakdown(marks, set())["task"]} == {None}


@given(st.lists(st.tuples(st.sampled_from(["single", "tool", "running"]), st.booleans()), min_size=1))
def test_tables_with_one_label_a_question_add_up(asked: list[tuple[str, bool]]) -> None:
    marks = [labels(task, []) for task, _ in asked]
    changed = {at for at, (_, change) in enumerate(asked) if change}
    rows = breakdown(marks, changed)["task"]
    assert sum(row["questions"] for row in rows) == len(asked)
    assert sum(row["changed"] for row in rows) == len(changed)
    for row in rows:
        assert row["rate_ci95"][0] <= row["rate"] <= row["rate_ci95"][1]


NAMES = ("narrow", "one", "needed", "wide", "all")


def attempt(remedy: str, live: int, restored: bool, source: str = "") -> Attempt:
    return Attempt(remedy, source, live, live / 100, restored)


def test_remedies_are_told_from_cheap_to_dear() -> None:
    first = [
        attempt("narrow", 10, False),
        attempt("one", 20, False, "a"),
        attempt("one", 22, True, "b"),
        attempt("wide", 40, True),
        attempt("all", 100, True),
    ]
    second = [
        attempt("narrow", 10, True),
        attempt("one", 20, False, "a"),
        attempt("wide", 10, True),
        attempt("all", 100, True),
    ]
    third = [attempt("narrow", 10, False), attempt("one", 18, False, "a"), attempt("wide", 60, False)]
    rows = remedy_rows(NAMES, [first, second, third])
    assert [row["remedy"] for row in rows] == ["narrow", "one", "wide", "all"], "what was never tried has no row"
    assert [row["mended"] for row in rows] == [1, 1, 2, 2]
    assert [row["cumulative"] for row in rows] == [1, 2, 2, 2]
    assert [row["tried"] for row in rows] == [3, 3, 3, 2]
    assert [row["cheapest"] for row in rows] == [1, 1, 0, 0]
    assert rows[1]["live_share"] == pytest.approx(0.2)
    assert rows[1]["cumulative_share"] == pytest.approx(2 / 3)
    assert cheapest(NAMES, first) == attempt("one", 22, True, "b")
    assert cheapest(NAMES, second) == attempt("narrow", 10, True), "the first of the ladder among equals"
    assert cheapest(NAMES, third) is None
    assert remedy_rows(NAMES, []) == []


def test_wilsons_interval() -> None:
    assert wilson(0, 10) == pytest.approx([0.0, 0.2775], abs=1e-4)
    assert wilson(5, 10) == pytest.approx([0.2366, 0.7634], abs=1e-4)
    with pytest.raises(ValueError, match="no value"):
        wilson(0, 0)
