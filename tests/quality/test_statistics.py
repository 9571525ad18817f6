from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.quality.statistics import Gap, mean_gap, paired_gap, share

pairs = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


def columns(rows: list[tuple[bool, bool]]) -> tuple[list[bool], list[bool]]:
    return [a for a, _ in rows], [b for _, b in rows]


def test_a_known_table() -> None:
    # 10 lost and 2 won of 100: (10.5 - 2.5) / 102 -+ 1.96 sqrt(13 - 64 / 102) / 102, in points.
    rows = [(True, False)] * 10 + [(False, True)] * 2 + [(True, True)] * 80 + [(False, False)] * 8
    gap = paired_gap(*columns(rows))
    assert gap.points == pytest.approx(8.0)
    assert gap.ci95 == pytest.approx([1.0842, 14.6021], abs=2e-3)


@pytest.mark.parametrize(("count", "high"), [(1, 65.3), (100, 1.92), (400, 0.49)])
def test_no_change_is_not_certainty(count: int, high: float) -> None:
    gap = paired_gap([True] * count, [True] * count)
    assert gap.points == 0
    assert gap.high == pytest.approx(high, rel=0.01)
    assert gap.low == -gap.high


@given(pairs)
def test_the_gap_is_the_difference_of_the_shares(rows: list[tuple[bool, bool]]) -> None:
    first, second = columns(rows)
    gap = paired_gap(first, second)
    assert gap.points == pytest.approx(100 * (share(first) - share(second)))
    assert -100 <= gap.low <= gap.high <= 100


@given(pairs)
def test_exchanging_the_sides_turns_the_gap_round(rows: list[tuple[bool, bool]]) -> None:
    first, second = columns(rows)
    there, back = paired_gap(first, second), paired_gap(second, first)
    assert (back.points, back.low, back.high) == pytest.approx((-there.points, -there.high, -there.low))


@given(pairs, st.integers(2, 5))
def test_more_questions_narrow_the_interval(rows: list[tuple[bool, bool]], times: int) -> None:
    few, many = paired_gap(*columns(rows)), paired_gap(*columns(rows * times))
    assert many.high - many.low < few.high - few.low + 1e-9


@given(pairs, st.integers(1, 5))
def test_the_mean_of_equal_gaps_is_the_gap_and_narrower(rows: list[tuple[bool, bool]], times: int) -> None:
    gap = paired_gap(*columns(rows))
    mean = mean_gap([gap] * times)
    assert mean.points == pytest.approx(gap.points)
    assert mean.high - mean.low == pytest.approx((gap.high - gap.low) / times**0.5)


def test_the_mean_weighs_tasks_alike() -> None:
    mean = mean_gap([Gap(10, 8, 12), Gap(0, -2, 2)])
    assert (mean.points, mean.low, mean.high) == pytest.approx((5, 5 - 2**0.5, 5 + 2**0.5))


def test_nothing_has_no_mean() -> None:
    with pytest.raises(ValueError, match="no question"):
        paired_gap([], [])
    with pytest.raises(ValueError, match="no gap"):
        mean_gap([])
    with pytest.raises(ValueError, match="no value"):
        share([])


def test_answers_must_pair_up() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_gap([True, False], [True])
