from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.bench.paper.findings import Experiment
from hypic_agents.bench.paper.fixed_decay import closed_form

# Table 2 of arXiv 2607.01299, typed in a second time.
TABLE = {
    (5, 256): 1.000, (5, 512): 1.000, (5, 1024): 1.000,
    (7, 256): 0.866, (7, 512): 0.982, (7, 1024): 1.000,
    (10, 256): 0.221, (10, 512): 0.394, (10, 1024): 0.632,
}  # fmt: skip


def test_the_whole_table_to_the_last_digit(run_once: Callable[[str], Experiment]) -> None:
    findings = run_once("fixed-decay")["findings"]
    assert [one["what"] for one in findings] == [f"gamma = 1 - 2^-{e}, {n} tokens" for e, n in TABLE]
    assert [one["theirs"] for one in findings] == list(TABLE.values())
    assert [round(one["ours"], 3) for one in findings] == list(TABLE.values())
    assert all(one["holds"] is True for one in findings)


def test_the_maps_meet_the_closed_form_in_float64(run_once: Callable[[str], Experiment]) -> None:
    made = run_once("fixed-decay")
    assert made["agreement"]["closed_form_composed_maps_and_recurrence"] < 1e-12
    for one, (exponent, length) in zip(made["findings"], TABLE, strict=True):
        assert one["ours"] == pytest.approx(1 - (1 - 2.0**-exponent) ** length, rel=1e-9)


@given(st.integers(1, 14), st.integers(0, 64))
def test_the_closed_form_is_what_the_decays_take_away(exponent: int, length: int) -> None:
    assert closed_form(exponent, length) == pytest.approx(1 - math.prod([1 - 2.0**-exponent] * length), abs=1e-12)


@given(st.integers(1, 14), st.integers(0, 4096))
def test_a_longer_segment_loses_more(exponent: int, length: int) -> None:
    assert 0 <= closed_form(exponent, length) <= closed_form(exponent, length + 1) <= 1
