"""What a calibration keeps of every prompt under every candidate: what the choice needs, no logits. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypic_agents.runtime.policy import ReusePolicy


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prompt under one policy, compared with full recompute.

    Attributes:
        lost: Full recompute answers right, the policy does not; without a given answer: the answer is another one.
        won: The policy answers right, full recompute does not.
        changed: The greedy answers differ, as far as scoring the reference answer shows.
        kl: KL(full recompute || policy) summed over the answer's positions, nats.
        positions: Tokens of the reference answer.
        live: Prompt tokens computed.
    """

    lost: bool
    won: bool
    changed: bool
    kl: float
    positions: int
    live: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One policy's outcomes, in the order of the prompts."""

    policy: ReusePolicy
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Trials:
    """All candidates on the same prompts; the first is full recompute.

    Attributes:
        prompt_lens: Tokens of each prompt.
        answered: Whether an answer was given for it.
    """

    trials: tuple[Trial, ...]
    prompt_lens: tuple[int, ...]
    answered: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.prompt_lens)

    def take(self, at: Sequence[int]) -> Trials:
        """The same candidates on some of the prompts."""
        return Trials(
            tuple(replace(trial, outcomes=tuple(trial.outcomes[i] for i in at)) for trial in self.trials),
            tuple(self.prompt_lens[i] for i in at),
            tuple(self.answered[i] for i in at),
        )
