"""Does the choice hold on prompts it has not seen? Choose on a random half, measure on the other one. No torch."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.calibrate.choose import choose
from hypic_agents.quality.calibrate.outcomes import Trials


@dataclass(frozen=True, slots=True)
class Split:
    """One split: what was chosen on one half, and what it measured on the other.

    Attributes:
        certainty: How sure the choice was of staying under the budget.
        seen_gap: Points on the half it was chosen on.
        heldout_gap: Points on the other half.
        held: ``heldout_gap`` is at or under the budget.
    """

    policy: str
    live_share: float
    certainty: float
    seen_gap: float
    heldout_gap: float
    held: bool


@dataclass(frozen=True, slots=True)
class Validation:
    """All splits; ``heldout`` prompts a half, of which one answer is ``points_per_answer``."""

    splits: tuple[Split, ...]
    heldout: int
    points_per_answer: float

    @property
    def num_held(self) -> int:
        return sum(split.held for split in self.splits)


def validate_splits(trials: Trials, *, splits: int, budget: float, confidence: float, seed: int) -> Validation:
    """Choose on one random half of the prompts and measure on the other, ``splits`` times.

    Nothing is computed anew: every candidate was scored on every prompt.

    Raises:
        InvalidInput: fewer than two prompts.
    """
    if len(trials) < 2:
        raise InvalidInput("one prompt cannot be split in halves; give more, or leave out --validate")
    rng = random.Random(f"splits/{seed}")
    made = []
    for _ in range(splits):
        order = rng.sample(range(len(trials)), len(trials))
        half = len(trials) // 2
        chosen = choose(trials.take(sorted(order[:half])), budget=budget, confidence=confidence).chosen
        rest = sorted(order[half:])
        trial = next(trial for trial in trials.trials if trial.policy == chosen.policy)
        net = sum(trial.outcomes[i].lost - trial.outcomes[i].won for i in rest)
        gap = 100 * net / len(rest)
        held = gap <= budget + 1e-9
        made.append(Split(chosen.policy.name, chosen.live_share, chosen.certainty, chosen.gap.points, gap, held))
    heldout = len(trials) - len(trials) // 2
    return Validation(tuple(made), heldout, 100 / heldout)
