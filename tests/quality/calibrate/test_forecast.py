"""What a repeat would show: against simulation, and laws that any such forecast must obey."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.quality.calibrate.forecast import Counts, Prior, forecast, prompts_needed


@st.composite
def counts(draw: st.DrawFn) -> Counts:
    prompts = draw(st.integers(1, 600))
    lost = draw(st.integers(0, min(prompts, 30)))
    return Counts(lost, draw(st.integers(0, min(prompts - lost, 30))), prompts)


priors = st.builds(Prior, st.sampled_from([0.0, 1e-5, 1e-3, 0.01, 0.1, 0.5]), st.sampled_from([0.5, 0.7, 1.0]))
points = st.floats(0, 100)
confidences = st.sampled_from([0.8, 0.9, 0.95, 0.99])


def scaled(one: Counts, times: int) -> Counts:
    return Counts(one.lost * times, one.won * times, one.prompts * times)


@given(counts(), priors, points, points)
def test_a_larger_budget_is_never_less_likely_to_hold(seen: Counts, prior: Prior, a: float, b: float) -> None:
    made = forecast(seen, prior, seen.prompts)
    assert 0 <= made.probability(min(a, b)) <= made.probability(max(a, b)) <= 1


@given(counts(), priors, confidences)
def test_the_bound_is_the_smallest_budget_that_holds(seen: Counts, prior: Prior, confidence: float) -> None:
    made = forecast(seen, prior, seen.prompts)
    bound = made.bound(confidence)
    assert made.probability(bound) >= confidence
    assert made.probability(bound - 100 / seen.prompts) < confidence


@given(counts(), priors, confidences, st.integers(2, 8))
def test_more_prompts_at_the_same_rates_are_never_looser(
    seen: Counts, prior: Prior, confidence: float, times: int
) -> None:
    few = forecast(seen, prior, seen.prompts).bound(confidence)
    many = scaled(seen, times)
    # A bound is a whole number of answers: it cannot be told finer than one answer of the smaller sample.
    assert forecast(many, prior, many.prompts).bound(confidence) < few + 100 / seen.prompts


@given(counts(), priors, points)
def test_a_loss_more_or_a_win_less_is_never_safer(seen: Counts, prior: Prior, budget: float) -> None:
    made = forecast(seen, prior, seen.prompts).probability(budget)
    if seen.lost + seen.won < seen.prompts:
        # The prior weighs less behind more changes, which may tip the scale by a hair.
        worse = Counts(seen.lost + 1, seen.won, seen.prompts)
        assert forecast(worse, prior, seen.prompts).probability(budget) <= made + 1e-9


@pytest.mark.parametrize(("lost", "won", "prompts"), [(0, 0, 350), (2, 1, 350), (30, 10, 1000), (3, 0, 20)])
def test_it_agrees_with_drawing_rates_and_counts(lost: int, won: int, prompts: int) -> None:
    prior = Prior(0.01, 0.5)
    made = forecast(Counts(lost, won, prompts), prior, prompts)
    weight = min(prompts, 4 / 0.01, prompts / (lost + won) if lost + won else prompts)
    rng = np.random.default_rng(0)
    draws = [
        rng.poisson(rng.gamma(shape + seen, 1 / (prompts + weight), 200_000) * prompts)
        for shape, seen in ((max(0.5, weight * 0.005), lost), (weight * 0.005, won))
    ]
    net = draws[0] - draws[1]
    for budget in (0.0, 0.5, 1.0, 5.0):
        assert made.probability(budget) == pytest.approx((net <= budget * prompts / 100).mean(), abs=0.005)


def test_a_budget_of_whole_answers_is_not_lost_to_rounding() -> None:
    made = forecast(Counts(1, 1, 350), Prior(0.01, 0.5), 350)
    assert made.probability(2 * 100 / 350) == made.probability(2.001 * 100 / 350) > made.probability(1.999 * 100 / 350)


def test_certainty_without_changes_needs_prompts_in_proportion_to_the_budget() -> None:
    assert [prompts_needed(budget, 0.95) for budget in (0.25, 0.5, 1.0)] == [400, 200, 100]
    assert prompts_needed(0.5, 0.999) > prompts_needed(0.5, 0.95) > prompts_needed(0.5, 0.5)
    needed = prompts_needed(0.5, 0.95)
    for prompts, enough in ((needed, True), (needed - 1, False)):
        unchanged = forecast(Counts(0, 0, prompts), Prior(1 / prompts, 0.5), prompts)
        assert (unchanged.probability(0.5) >= 0.95) is enough


def test_nothing_to_count_on_is_an_error() -> None:
    with pytest.raises(ValueError, match="no prompt"):
        forecast(Counts(0, 0, 0), Prior(0.1, 0.5), 10)
