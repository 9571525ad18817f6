"""When is a policy over its budget? Page's cumulative sum test over audited answers. No torch.

Each audited answer is a trial: it changed or it did not. The sum adds the log likelihood ratio of a clearly bad share
of changed answers against the budget, and never falls below zero, so that a long good past does not hide a fault that
begins today. As long as no more answers change than the budget allows, a false alarm is expected at most once in
``1 / FALSE_ALARM`` trials (Lorden, Annals of Mathematical Statistics 42, 1971). One answer never raises an alarm alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FALSE_ALARM = 1e-3
_THRESHOLD = -math.log(FALSE_ALARM)
# The share that the test is tuned to notice fastest, as a multiple of the budget.
_BAD = 4.0


@dataclass(slots=True)
class Evidence:
    """The test for one policy, or for one segment kind under it.

    Attributes:
        budget: Share of audited answers that may change, between 0 and 1 (both excluded).
        level: The cumulative sum, in nats.
        trials: Audited answers since the sum was last zero: since about when the fault has been there, if there is one.
        changed: Those of them that changed.
    """

    budget: float
    level: float = 0.0
    trials: int = 0
    changed: int = 0

    def add(self, changed: bool) -> None:
        """Take one audited answer into account."""
        bad = min(_BAD * self.budget, (1 + self.budget) / 2)
        step = math.log(bad / self.budget) if changed else math.log((1 - bad) / (1 - self.budget))
        self.level = max(0.0, self.level + step)
        self.trials = self.trials + 1 if self.level else 0
        self.changed = self.changed + changed if self.level else 0

    @property
    def alarm(self) -> bool:
        return self.level >= _THRESHOLD

    @property
    def pressure(self) -> float:
        """How near the alarm is: 0 (nothing speaks for it) to 1 (raised)."""
        return min(1.0, self.level / _THRESHOLD)
