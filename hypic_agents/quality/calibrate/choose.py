"""The cheapest candidate whose gap stays under the budget with the stated confidence. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from hypic_agents.quality.calibrate.forecast import Counts, Prior, forecast
from hypic_agents.quality.calibrate.outcomes import Trial, Trials
from hypic_agents.quality.statistics import Gap, paired_gap, wilson
from hypic_agents.runtime.policy import ReusePolicy

Verdict = Literal["reference", "chosen", "within", "not sure", "over budget"]


@dataclass(frozen=True, slots=True)
class Assessment:
    """One candidate.

    Attributes:
        live_share: Share of the prompt tokens computed.
        gap: Points lost against full recompute, with a 95 % interval.
        agreement: Share of prompts with the same greedy answer as full recompute.
        kl: KL(full recompute || policy) a token of the answers, nats.
        bound: Points that the gap on as many other prompts stays at or under, with the confidence asked for.
        certainty: Probability that it stays at or under the budget.
        verdict: "chosen"; "within" the budget too, but not cheaper or not closer; "not sure" enough; measured "over
            budget"; full recompute is the "reference" where it is not chosen.
    """

    policy: ReusePolicy
    live_share: float
    counts: Counts
    gap: Gap
    agreement: float
    kl: float
    bound: float
    certainty: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Choice:
    """All candidates, from the fewest live tokens to full recompute, and the one chosen."""

    candidates: tuple[Assessment, ...]
    chosen: Assessment


def choose(trials: Trials, *, budget: float, confidence: float) -> Choice:
    """Assess every candidate and choose.

    Two things make the most of few changed answers. Candidates that move the logits further change more answers, in
    proportion, so all of them together say what to expect of each. And no candidate counts as safer than one that
    stays closer to full recompute: a cheap policy that was lucky is not chosen past a closer one that was not.

    Args:
        trials: Every candidate on the same prompts, full recompute first.
        budget: Largest gap in points, 0 or more.
        confidence: Probability with which the gap on as many other prompts must stay at or under the budget.
    """
    exact, *others = trials.trials
    others.sort(key=_shift)
    counts = [_counts(trial) for trial in others]
    made = [forecast(*pair, len(trials)) for pair in zip(counts, _priors(trials, others, counts), strict=True)]
    # From the closest to the farthest, so that certainty only falls and bounds only rise.
    certainties = accumulate((one.probability(budget) for one in made), min)
    bounds = accumulate((one.bound(confidence) for one in made), max)
    assessed = [
        _assess(trials, trial, certainty=certainty, bound=bound)
        for trial, certainty, bound in zip(others, certainties, bounds, strict=True)
    ]
    # The sort is stable: of equally cheap candidates the closer one comes first.
    assessed.sort(key=lambda one: one.live_share)
    assessed.append(_assess(trials, exact, certainty=1.0, bound=0.0))
    best = next(one for one in assessed if one.policy.exact or one.certainty >= confidence)
    judged = tuple(replace(one, verdict=_verdict(one, best, budget, confidence)) for one in assessed)
    return Choice(judged, next(one for one in judged if one.verdict == "chosen"))


def _verdict(one: Assessment, best: Assessment, budget: float, confidence: float) -> Verdict:
    if one is best:
        return "chosen"
    if one.policy.exact:
        return "reference"
    if one.certainty >= confidence:
        return "within"
    return "not sure" if one.gap.points <= budget else "over budget"


def _assess(trials: Trials, trial: Trial, *, certainty: float, bound: float) -> Assessment:
    outcomes, counts = trial.outcomes, _counts(trial)
    return Assessment(
        policy=trial.policy,
        live_share=sum(one.live for one in outcomes) / sum(trials.prompt_lens),
        counts=counts,
        gap=Gap(0.0, 0.0, 0.0) if trial.policy.exact else _gap(counts, answered=any(trials.answered)),
        agreement=sum(not one.changed for one in outcomes) / len(outcomes),
        kl=sum(one.kl for one in outcomes) / sum(one.positions for one in outcomes),
        bound=bound,
        certainty=certainty,
        verdict="not sure",
    )


def _priors(trials: Trials, others: Sequence[Trial], counts: Sequence[Counts]) -> list[Prior]:
    """What the candidates together say of each: one change more than was seen, shared out by their shifts."""
    shifts = [_shift(trial) for trial in others]
    changes = 1 + sum(count.lost + count.won for count in counts)
    rate = changes / (len(trials) * sum(shifts)) if any(shifts) else 0.0
    lost_share = _lost_share(trials)
    return [Prior(rate * shift, lost_share) for shift in shifts]


def _shift(trial: Trial) -> float:
    """How far a typical logit moves, up to a factor: the mean over the prompts of the square root of KL.

    The share of answers that change is the density of near ties times that distance. A mean of KL itself would be
    ruled by the few prompts that moved most.
    """
    return sum(math.sqrt(one.kl) for one in trial.outcomes) / len(trial.outcomes)


def _lost_share(trials: Trials) -> float:
    """The share of losses to expect among changes: at least half, and all of them where no answer was given."""
    lost = won = 0
    for trial in trials.trials:
        for one, answered in zip(trial.outcomes, trials.answered, strict=True):
            lost += one.lost and answered
            won += one.won
    answered_share = sum(trials.answered) / len(trials)
    return 1 - answered_share + answered_share * max(0.5, (lost + 1) / (lost + won + 2))


def _counts(trial: Trial) -> Counts:
    outcomes = trial.outcomes
    return Counts(sum(one.lost for one in outcomes), sum(one.won for one in outcomes), len(outcomes))


def _gap(counts: Counts, *, answered: bool) -> Gap:
    """The paired gap; without any answer, the share of changed answers, which cannot be negative."""
    lost, won, prompts = counts.lost, counts.won, counts.prompts
    if not answered:
        low, high = wilson(lost, prompts)
        return Gap(100 * lost / prompts, 100 * low, 100 * high)
    same = [False] * (prompts - lost - won)
    return paired_gap([True] * lost + [False] * won + same, [False] * lost + [True] * won + same)
