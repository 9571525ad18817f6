"""Paired comparison of right and wrong answers to the same questions. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Gap:
    """How much better the first of two answers more often, in points (hundredths), with a 95 % interval."""

    points: float
    low: float
    high: float

    @property
    def ci95(self) -> list[float]:
        return [self.low, self.high]


def paired_gap(first: Sequence[bool], second: Sequence[bool]) -> Gap:
    """The share of questions that ``first`` gets right minus that of ``second``.

    The interval is Agresti and Min's adjusted Wald interval for paired shares (Statistics in Medicine 24, 2005): half
    a question is added to each cell of the 2 x 2 table, so that no change in n questions does not claim certainty.
    Questions count as independent, also those behind the same documents.

    Raises:
        ValueError: different lengths, or no question.
    """
    if not first:
        raise ValueError("no question to compare")
    lost = sum(a and not b for a, b in zip(first, second, strict=True))
    won = sum(b and not a for a, b in zip(first, second, strict=True))
    count = len(first) + 2
    more, less = lost + 0.5, won + 0.5
    centre = (more - less) / count
    half = _Z95 * math.sqrt(more + less - (more - less) ** 2 / count) / count
    points = 100 * (lost - won) / len(first)
    return Gap(points, 100 * max(-1.0, centre - half), 100 * min(1.0, centre + half))


def mean_gap(gaps: Sequence[Gap]) -> Gap:
    """The unweighted mean over independent sets of questions.

    Raises:
        ValueError: none given.
    """
    if not gaps:
        raise ValueError("no gap to average")
    centre = sum(gap.low + gap.high for gap in gaps) / (2 * len(gaps))
    half = math.sqrt(sum(((gap.high - gap.low) / 2) ** 2 for gap in gaps)) / len(gaps)
    return Gap(sum(gap.points for gap in gaps) / len(gaps), centre - half, centre + half)


def share(values: Sequence[bool]) -> float:
    """Share of true values, between 0 and 1.

    Raises:
        ValueError: none given.
    """
    if not values:
        raise ValueError("no value to average")
    return sum(values) / len(values)


def wilson(hits: int, count: int) -> list[float]:
    """Wilson's 95 % interval of the share ``hits / count`` (J. Am. Stat. Assoc. 22, 1927).

    Raises:
        ValueError: ``count`` is 0.
    """
    if not count:
        raise ValueError("no value to average")
    rate, weight = hits / count, _Z95**2 / count
    centre = (rate + weight / 2) / (1 + weight)
    half = _Z95 * math.sqrt(rate * (1 - rate) / count + weight / (4 * count)) / (1 + weight)
    # Rounding must not push an end past the share itself where that is 0 or 1.
    return [max(0.0, min(rate, centre - half)), min(1.0, max(rate, centre + half))]
