"""The sequential test: quick to see a fault, slow to cry wolf."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.runtime.audit.evidence import Evidence

budgets = st.floats(0.001, 0.9)


@given(budgets, st.integers(0, 300))
def test_one_changed_answer_after_any_number_of_good_ones_is_no_alarm(budget: float, good: int) -> None:
    one = Evidence(budget)
    for _ in range(good):
        one.add(False)
    one.add(True)
    assert not one.alarm
    assert 0 < one.pressure < 1


@given(budgets, st.integers(0, 300))
def test_a_good_past_hides_no_fault(budget: float, good: int) -> None:
    fresh, old = Evidence(budget), Evidence(budget)
    for _ in range(good):
        old.add(False)
    assert (old.level, old.trials, old.changed) == (0.0, 0, 0)
    needed = 0
    while not fresh.alarm:
        fresh.add(True)
        old.add(True)
        needed += 1
    assert old.alarm
    assert (old.trials, old.changed) == (needed, needed)


@pytest.mark.parametrize(("share", "most"), [(1.0, 6), (0.5, 30), (0.3, 60)])
def test_a_clear_fault_is_seen_within_as_many_audits(share: float, most: int) -> None:
    rng = random.Random(1)
    taken = []
    for _ in range(200):
        one = Evidence(0.05)
        while not one.alarm:
            one.add(rng.random() < share)
        taken.append(one.trials)
    assert sorted(taken)[180] <= most


@pytest.mark.parametrize(("share", "most"), [(0.05, 0.1), (0.01, 0.0)])
def test_within_the_budget_alarms_are_rare(share: float, most: float) -> None:
    """Share of 200-trial runs with an alarm; the bound at the budget itself is one in a thousand trials."""
    rng = random.Random(2)
    alarms = 0
    for _ in range(500):
        one = Evidence(0.05)
        alarms += any(one.add(rng.random() < share) or one.alarm for _ in range(200))
    assert alarms / 500 <= most
