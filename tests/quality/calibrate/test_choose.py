"""The choice on made-up outcomes: cheap where it is safe, exact where nothing is, and never by luck alone."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypic_agents.errors import InvalidInput, InvalidPolicy
from hypic_agents.quality.calibrate.candidates import LADDER, make_candidates
from hypic_agents.quality.calibrate.choose import choose
from hypic_agents.quality.calibrate.outcomes import Outcome, Trial, Trials
from hypic_agents.quality.calibrate.validate import validate_splits
from hypic_agents.runtime.policy import parse_policy
from tests.quality.calibrate.make_trials import PROMPT_LEN, trial, trials

CHEAP, MIDDLE, DEAR = "hypic:head_seam=4", "hypic:head_seam=16", "hypic:head_seam=64"


def chosen(made: Trials, *, budget: float = 0.5, confidence: float = 0.95) -> str:
    return choose(made, budget=budget, confidence=confidence).chosen.policy.name


def test_the_cheapest_of_those_that_change_nothing_is_chosen() -> None:
    made = trials(400, [trial(DEAR, 400, kl=1e-6, live=60), trial(CHEAP, 400, kl=4e-6, live=10)])
    choice = choose(made, budget=0.5, confidence=0.95)
    assert [(one.policy.name, one.verdict) for one in choice.candidates] == [
        (CHEAP, "chosen"),
        (DEAR, "within"),
        ("exact", "reference"),
    ]
    assert choice.chosen.certainty >= 0.95
    assert choice.chosen.bound <= 0.5
    assert choice.chosen.live_share == 0.1


def test_few_prompts_choose_exact_however_well_they_went() -> None:
    for prompts in (1, 10, 199):
        assert chosen(trials(prompts, [trial(CHEAP, prompts, kl=1e-4, live=10)])) == "exact"


def test_a_policy_that_loses_answers_is_not_chosen() -> None:
    made = trials(400, [trial(CHEAP, 400, lost=20, won=2, kl=0.05, live=10)])
    candidates = choose(made, budget=0.5, confidence=0.95).candidates
    assert [(one.policy.name, one.verdict) for one in candidates] == [(CHEAP, "over budget"), ("exact", "chosen")]
    assert candidates[0].gap.points == pytest.approx(4.5)
    assert candidates[0].bound > 4.5


def test_many_wins_do_not_hide_uncertainty_but_do_count() -> None:
    even = trials(400, [trial(CHEAP, 400, lost=8, won=8, kl=0.01, live=10)])
    assert choose(even, budget=0.5, confidence=0.95).candidates[0].verdict == "not sure"
    ahead = trials(400, [trial(CHEAP, 400, lost=2, won=20, kl=0.01, live=10)])
    assert chosen(ahead) == CHEAP


def test_a_lucky_cheap_policy_is_not_chosen_past_a_closer_one_that_failed() -> None:
    lucky = [trial(CHEAP, 400, kl=0.04, live=10), trial(MIDDLE, 400, lost=9, kl=0.01, live=20)]
    assert chosen(trials(400, lucky)) == "exact"
    # A closer policy that failed on other grounds does not matter to those that are closer still.
    assert chosen(trials(400, [*lucky, trial(DEAR, 400, kl=1e-6, live=60)])) == DEAR


def test_changes_of_the_other_candidates_lower_the_certainty_of_one_that_shows_none() -> None:
    alone = trials(400, [trial(MIDDLE, 400, kl=0.01, live=20)])
    beside = trials(400, [trial(MIDDLE, 400, kl=0.01, live=20), trial(CHEAP, 400, lost=30, won=10, kl=0.04, live=10)])
    first, second = (
        next(one for one in choose(made, budget=0.5, confidence=0.95).candidates if one.policy.name == MIDDLE)
        for made in (alone, beside)
    )
    assert second.certainty < first.certainty
    assert second.counts == first.counts


def test_of_equally_cheap_policies_the_closer_one_is_chosen() -> None:
    alone = "hypic:head_seam=4,condition_on_system=false"
    made = trials(400, [trial(alone, 400, kl=2e-6, live=10), trial(CHEAP, 400, kl=1e-6, live=10)])
    assert chosen(made) == CHEAP


def test_without_answers_every_change_is_a_loss() -> None:
    made = trials(400, [trial(CHEAP, 400, lost=4, kl=0.01, live=10)], answered=False)
    candidate = choose(made, budget=0.5, confidence=0.95).candidates[0]
    assert candidate.gap.points == 1.0
    assert 0 < candidate.gap.low < 1 < candidate.gap.high
    assert candidate.agreement == 0.99
    quiet = trials(400, [trial(CHEAP, 400, kl=1e-4, live=10)], answered=False)
    assert chosen(quiet) == CHEAP


def test_no_candidate_leaves_exact() -> None:
    choice = choose(trials(5, []), budget=0.5, confidence=0.95)
    assert choice.chosen.policy.exact
    assert choice.candidates == (choice.chosen,)
    assert (choice.chosen.gap.low, choice.chosen.gap.high, choice.chosen.certainty) == (0, 0, 1)


def ladder(rng: random.Random, prompts: int, scale: float) -> Trials:
    """Candidates that move one latent margin a prompt by less and less; what flips is lost or won by a coin."""
    made = []
    margins = [rng.expovariate(1) for _ in range(prompts)]
    pulls = [rng.gauss(0, 1) for _ in range(prompts)]
    coins = [rng.random() < 0.5 for _ in range(prompts)]
    for seam, live in ((4, 10), (8, 14), (16, 21), (32, 36), (64, 66), (128, 95)):
        # KL is the same on every prompt, so that its mean and the mean of its root order the candidates alike.
        shift = scale / math.sqrt(seam)
        outcomes = []
        for margin, pull, coin in zip(margins, pulls, coins, strict=True):
            moved = shift * (0.9 * pull + 0.4 * rng.gauss(0, 1))
            flipped = -moved > margin
            outcomes.append(Outcome(flipped and coin, flipped and not coin, flipped, shift**2, 1, live))
        made.append(Trial(parse_policy(f"hypic:head_seam={seam}"), tuple(outcomes)))
    return trials(prompts, made)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.floats(0.005, 0.5), st.floats(0, 5), st.floats(0, 5))
def test_a_larger_budget_never_chooses_a_dearer_policy(seed: int, scale: float, a: float, b: float) -> None:
    made = ladder(random.Random(seed), 120, scale)
    small, large = (choose(made, budget=budget, confidence=0.9).chosen for budget in sorted((a, b)))
    assert large.live_share <= small.live_share


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.floats(0.005, 0.5))
def test_certainty_falls_and_bounds_rise_with_the_distance_from_full_recompute(seed: int, scale: float) -> None:
    choice = choose(ladder(random.Random(seed), 120, scale), budget=1, confidence=0.9)
    by_distance = sorted(choice.candidates, key=lambda one: one.kl)
    assert [one.certainty for one in by_distance] == sorted((one.certainty for one in by_distance), reverse=True)
    assert [one.bound for one in by_distance[1:]] == sorted(one.bound for one in by_distance[1:])
    for one in choice.candidates:
        assert (one.certainty >= 0.9) == (one.bound <= 1)
        assert (one.verdict in ("chosen", "within", "reference")) == (one.certainty >= 0.9)


def test_choices_hold_on_the_other_half_and_are_not_all_exact() -> None:
    rng = random.Random(3)
    held, live = [], []
    for _ in range(4):
        result = validate_splits(ladder(rng, 1400, 0.02), splits=10, budget=0.5, confidence=0.95, seed=0)
        held.append(result.num_held)
        live += [split.live_share for split in result.splits]
    assert sum(count >= 9 for count in held) >= 3
    assert sum(live) / len(live) < 0.5


def test_a_split_chooses_on_one_half_and_measures_on_the_other() -> None:
    # All losses of the cheap policy stand on prompts that it also loses when it is chosen on the others.
    made = trials(800, [trial(CHEAP, 800, lost=3, kl=1e-6, live=10)])
    result = validate_splits(made, splits=20, budget=0.5, confidence=0.9, seed=1)
    assert result.heldout == 400
    assert result.points_per_answer == 0.25
    assert result == validate_splits(made, splits=20, budget=0.5, confidence=0.9, seed=1)
    assert result != validate_splits(made, splits=20, budget=0.5, confidence=0.9, seed=2)
    for split in result.splits:
        if split.policy == CHEAP:
            assert split.seen_gap + split.heldout_gap == pytest.approx(0.75)
        assert split.held == (split.heldout_gap <= 0.5)
    assert {split.policy for split in result.splits} == {CHEAP, "exact"}
    assert 0 < result.num_held < 20


def test_an_odd_prompt_goes_to_the_half_that_measures() -> None:
    result = validate_splits(trials(3, []), splits=1, budget=0.5, confidence=0.9, seed=0)
    assert result.heldout == 2
    with pytest.raises(InvalidInput, match="cannot be split"):
        validate_splits(trials(1, []), splits=1, budget=0.5, confidence=0.9, seed=0)


def test_prompts_are_taken_together_with_their_outcomes() -> None:
    made = trials(4, [trial(CHEAP, 4, lost=1, won=1, live=10)]).take([0, 3])
    assert len(made) == 2
    assert [one.lost for one in made.trials[1].outcomes] == [True, False]
    assert made.prompt_lens == (PROMPT_LEN, PROMPT_LEN)


def test_candidates_are_full_recompute_the_ladder_and_what_was_asked_for_once_each() -> None:
    made = make_candidates(("hypic:head_seam=8", "hypic", "zero_state"))
    assert [policy.name for policy in made] == ["exact", *LADDER, "zero_state"], "hypic is in the ladder already"
    assert [policy.name for policy in make_candidates(("hypic",), ladder=False)] == ["exact", "hypic"]
    with pytest.raises(InvalidPolicy, match="unknown policy"):
        make_candidates(("hypik",))
    with pytest.raises(InvalidPolicy, match="no candidate"):
        make_candidates(("prefix",))
