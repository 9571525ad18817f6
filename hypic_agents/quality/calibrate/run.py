"""Calibration from prompts to a policy: score every candidate, choose, validate, and list what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypic_agents.quality.calibrate.changes import Change, list_changes
from hypic_agents.quality.calibrate.choose import Choice, choose
from hypic_agents.quality.calibrate.items import Progress, make_asked
from hypic_agents.quality.calibrate.outcomes import Trials
from hypic_agents.quality.calibrate.prompts import PromptRecord
from hypic_agents.quality.calibrate.request import BUDGET, CONFIDENCE, MAX_TOKENS, check_request
from hypic_agents.quality.calibrate.trial import run_trials
from hypic_agents.quality.calibrate.validate import Validation, validate_splits
from hypic_agents.runtime.policy import ReusePolicy

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine


@dataclass(frozen=True, slots=True)
class Calibration:
    """A finished calibration.

    Attributes:
        idle: Candidates that reuse nothing of these prompts, and so were not scored.
        changes: Prompts that the chosen policy answers otherwise than full recompute.
        validation: None if no splits were asked for.
    """

    budget: float
    confidence: float
    trials: Trials
    choice: Choice
    idle: tuple[ReusePolicy, ...]
    changes: tuple[Change, ...]
    validation: Validation | None


def calibrate(
    engine: Engine,
    records: Sequence[PromptRecord],
    candidates: Sequence[ReusePolicy],
    *,
    budget: float = BUDGET,
    confidence: float = CONFIDENCE,
    splits: int = 0,
    seed: int = 0,
    max_tokens: int = MAX_TOKENS,
    progress: Progress,
) -> Calibration:
    """Choose the cheapest candidate that stays within ``budget`` points of full recompute on these prompts.

    Args:
        engine: Its store is emptied.
        records: At least one prompt.
        candidates: Policies to try; full recompute is always among them.
        budget: Largest gap in points (hundredths of the answers), 0 or more.
        confidence: Between 0 and 1: probability with which as many other prompts must stay within the budget.
        splits: Random halvings on which to validate the choice; 0 for none.
        seed: Fixes the splits.
        max_tokens: Longest answer of prompts that come without one.
        progress: Told of stages.

    Raises:
        InvalidInput: no prompt, a bad budget, confidence or count, or a prompt that cannot be built.
    """
    check_request(budget=budget, confidence=confidence, splits=splits, prompts=len(records))
    asked = make_asked(engine, records, max_tokens=max_tokens, progress=progress)
    trials = run_trials(engine, asked, candidates, progress)
    choice = choose(trials, budget=budget, confidence=confidence)
    validation = (
        validate_splits(trials, splits=splits, budget=budget, confidence=confidence, seed=seed) if splits else None
    )
    tried = {trial.policy for trial in trials.trials}
    chosen = next(trial for trial in trials.trials if trial.policy == choice.chosen.policy)
    return Calibration(
        budget=budget,
        confidence=confidence,
        trials=trials,
        choice=choice,
        idle=tuple(policy for policy in candidates if policy not in tried),
        changes=list_changes(engine, asked, chosen, progress),
        validation=validation,
    )
