"""Where the run stands: the level, and whether steps may be isolated."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from training.config import COPY_TASKS, TrainConfig
from training.scoring import Outcome, RunningMatch


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What all workers share of a step. Seam widths in tokens; ``condition`` builds documents behind the prefix."""

    level: int
    isolated: bool
    head_seam: int
    condition: bool


class Curriculum:
    """Goes up a level when the copy tasks are right often enough, or when the budget asks for it."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.level = 0
        self.steps_at_level = 0
        self.isolating = False
        self._match = RunningMatch()

    def plan(self, rng: random.Random, *, can_isolate: bool) -> StepPlan:
        """Draw a step: mostly the present level, for a share of the steps an earlier one."""
        config, level = self.config, self.level
        if level and rng.random() < config.earlier_share:
            level = rng.randrange(level)
        isolated = self.isolating and can_isolate and rng.random() < config.isolate_share
        return StepPlan(level, isolated, rng.choice(config.head_seams), rng.random() < config.condition_share)

    def update(self, plan: StepPlan, results: Iterable[Outcome], progress: float) -> bool:
        """Count a step taken; True when the next level starts.

        Only ordinary steps at the current level count: isolated ones start late and would hold the level back.
        """
        config = self.config
        self.steps_at_level += 1
        if plan.level == self.level and not plan.isolated:
            self._match.add("ordinary", results)
        match = self._match.mean("ordinary", COPY_TASKS)
        if match is None:
            return False
        self.isolating |= match >= config.isolate_from
        if self.level + 1 == len(config.levels) or self.steps_at_level < config.min_level_steps:
            return False
        overdue = self.isolating and progress >= config.latest_level_share[self.level]
        if match < config.level_up and not overdue:
            return False
        self.level += 1
        self.steps_at_level = 0
        self._match.clear()
        return True

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; the running match starts afresh."""
        return {"level": self.level, "steps_at_level": self.steps_at_level, "isolating": self.isolating}

    def restore(self, state: dict[str, Any]) -> None:
        self.level = state["level"]
        self.steps_at_level = state["steps_at_level"]
        self.isolating = state["isolating"]
