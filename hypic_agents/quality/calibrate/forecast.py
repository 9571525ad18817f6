"""What the same measurement on as many other prompts would show: a distribution over lost answers. No torch.

A policy's true gap is not seen, only how many answers changed on some prompts; so few change that a plain count says
little. The count is therefore joined with a prior, and the result is stated for something that can be checked: the
gap that another sample would measure. Lost and won answers are Poisson counts with gamma priors, so a repeat's counts
are negative binomial and their difference is a convolution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# What the prior weighs at most, in changed answers: those that it expects, and those that were seen. A candidate that
# changed more than was expected of it is thus hardly excused, one that changed less is taken to have been lucky.
_EXPECTED_CHANGES: Final = 4.0
_SEEN_CHANGES: Final = 1.0
# Half a loss, as in Jeffreys' prior: an answer may flip that nothing announced.
_LEAST_LOSS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Counts:
    """Of ``prompts`` answers, ``lost`` are right under full recompute only and ``won`` under the policy only."""

    lost: int
    won: int
    prompts: int


@dataclass(frozen=True, slots=True)
class Prior:
    """What other candidates say about this one: the share of answers lost or won, and of these the share lost."""

    rate: float
    lost_share: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Net loss (lost less won) in ``repeat`` other prompts.

    Attributes:
        lowest: The smallest net loss listed.
        cumulative: ``[i]`` is the probability of a net loss of at most ``lowest + i``.
    """

    repeat: int
    lowest: int
    cumulative: tuple[float, ...]

    def probability(self, points: float) -> float:
        """That the repeat measures a gap of at most so many points."""
        # One answer is 100 / repeat points; a budget that is a whole number of answers must not fail by rounding.
        at = math.floor(points * self.repeat / 100 + 1e-9) - self.lowest
        return 0.0 if at < 0 else self.cumulative[min(at, len(self.cumulative) - 1)]

    def bound(self, confidence: float) -> float:
        """The smallest gap in points that the repeat stays at or under with this probability."""
        at = next((i for i, p in enumerate(self.cumulative) if p >= confidence), len(self.cumulative) - 1)
        return 100 * (self.lowest + at) / self.repeat


def forecast(counts: Counts, prior: Prior, repeat: int) -> Forecast:
    """The distribution of the net loss in ``repeat`` other prompts.

    Raises:
        ValueError: no prompt.
    """
    if counts.prompts < 1 or repeat < 1:
        raise ValueError("no prompt to count on")
    weight = _prior_weight(counts, prior)
    expected = weight * prior.rate
    rate = counts.prompts + weight
    lost = _negative_binomial(max(_LEAST_LOSS, expected * prior.lost_share) + counts.lost, rate, repeat)
    won = _negative_binomial(expected * (1 - prior.lost_share) + counts.won, rate, repeat)
    net = np.convolve(lost, won[::-1]).cumsum()
    return Forecast(repeat, 1 - len(won), tuple(np.minimum(net / net[-1], 1.0).tolist()))


def _prior_weight(counts: Counts, prior: Prior) -> float:
    """How many prompts the prior stands for; never more than were asked."""
    weight = float(counts.prompts)
    if prior.rate:
        weight = min(weight, _EXPECTED_CHANGES / prior.rate)
    if seen := (counts.lost + counts.won) / counts.prompts:
        weight = min(weight, _SEEN_CHANGES / seen)
    return weight


def _negative_binomial(shape: float, rate: float, exposure: float) -> NDArray[np.float64]:
    """Probabilities of 0, 1, 2, ... events in ``exposure``, their rate being gamma distributed."""
    if shape == 0:
        return np.ones(1)
    mean = shape * exposure / rate
    last = math.ceil(mean + 12 * math.sqrt(mean * (1 + exposure / rate)) + 40)
    steps = np.arange(1, last + 1)
    ratios = np.log((shape + steps - 1) / steps * exposure / (rate + exposure))
    logs = np.concatenate([[0.0], ratios.cumsum()]) + shape * math.log(rate / (rate + exposure))
    return np.exp(logs)


def prompts_needed(points: float, confidence: float) -> int:
    """Prompts from which a single candidate that changes no answer is accepted.

    ``points`` must be above 0 and ``confidence`` below 1.
    """
    answers = 0
    while True:
        prompts = math.ceil(100 * answers / points - 1e-9) or 1
        # A candidate that changed nothing, as :func:`choose` sees it: one change in as many prompts, either way.
        seen = forecast(Counts(0, 0, prompts), Prior(1 / prompts, 0.5), prompts)
        if seen.probability(points) >= confidence:
            return prompts
        answers += 1
