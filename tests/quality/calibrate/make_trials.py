"""Trials made by hand, for tests of the choice: no engine."""

from __future__ import annotations

from collections.abc import Sequence

from hypic_agents.quality.calibrate.outcomes import Outcome, Trial, Trials
from hypic_agents.runtime.policy import ReusePolicy, parse_policy

PROMPT_LEN = 100


def trial(spec: str | ReusePolicy, prompts: int, *, lost: int = 0, won: int = 0, kl: float = 0.0, live: int) -> Trial:
    """The first ``lost`` prompts are lost, the ``won`` next ones won."""
    outcomes = tuple(
        Outcome(i < lost, lost <= i < lost + won, i < lost + won, kl, positions=2, live=live) for i in range(prompts)
    )
    return Trial(parse_policy(spec), outcomes)


def trials(prompts: int, others: Sequence[Trial], *, answered: bool = True) -> Trials:
    exact = trial("exact", prompts, live=PROMPT_LEN)
    return Trials((exact, *others), (PROMPT_LEN,) * prompts, (answered,) * prompts)
