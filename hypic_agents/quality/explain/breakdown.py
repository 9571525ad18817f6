"""Where changed answers gather, against how all questions are spread, and what each remedy mends. No torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from hypic_agents.quality.explain.places import FactPlace
from hypic_agents.quality.explain.remedies import Attempt
from hypic_agents.quality.statistics import wilson
from hypic_agents.quality.worlds import TASKS

_EDGES: Final = (0, 8, 16, 32, 64)
NONE_NEEDED, NOT_FOUND, IS_LIVE = "no segment needed", "not found", "live"
# Labels in the order in which tables and pictures show them.
DISTANCES: Final = (
    NONE_NEEDED,
    NOT_FOUND,
    IS_LIVE,
    *(f"{low} to {high - 1}" for low, high in pairwise(_EDGES)),
    f"{_EDGES[-1]} or more",
)
QUARTERS: Final = ("first quarter", "second quarter", "third quarter", "last quarter")


def distance(places: Sequence[FactPlace]) -> str:
    """How far behind its segment's head seam the farthest composed fact of a question begins, in tokens."""
    if not places:
        return NONE_NEEDED
    if any(place.position is None for place in places):
        return NOT_FOUND
    composed = [place.to_seam for place in places if place.to_live and place.to_seam is not None]
    if not composed:
        return IS_LIVE
    bucket = sum(edge <= max(composed) for edge in _EDGES)
    return DISTANCES[2 + bucket]


def labels(task: str, places: Sequence[FactPlace]) -> dict[str, frozenset[str]]:
    """What a question counts as in each table: one label, or one for each sort of segment it needs."""
    return {
        "task": frozenset({task}),
        "distance": frozenset({distance(places)}),
        "order": frozenset(QUARTERS[(4 * place.order - 2) // place.segments] for place in places),
        "needed": frozenset({str(len({(place.kind, place.source_id) for place in places}))}),
        "style": frozenset(place.style for place in places),
    }


def breakdown(marks: Sequence[Mapping[str, frozenset[str]]], changed: Collection[int]) -> dict[str, Any]:
    """A table for each key of ``marks``: all questions and the changed ones, by label.

    Args:
        marks: Labels of every question.
        changed: Indices of the changed ones.

    Returns:
        For each key rows of ``value``, ``questions``, ``question_share``, ``changed``, ``changed_share``, ``rate``
        (changed of these questions), ``rate_ci95`` (Wilson) and ``lift``, the rate over that of all questions (None
        where nothing changed).
    """
    overall = len(changed) / len(marks)
    tables: dict[str, Any] = {}
    for key in marks[0]:
        rows = []
        for value in _in_order({label for mark in marks for label in mark[key]}):
            have = [at for at, mark in enumerate(marks) if value in mark[key]]
            hit = sum(at in changed for at in have)
            rows.append(
                {
                    "value": value,
                    "questions": len(have),
                    "question_share": len(have) / len(marks),
                    "changed": hit,
                    "changed_share": hit / len(changed) if changed else 0.0,
                    "rate": hit / len(have),
                    "rate_ci95": wilson(hit, len(have)),
                    "lift": hit / len(have) / overall if overall else None,
                }
            )
        tables[key] = rows
    return tables


def remedy_rows(names: Sequence[str], attempts: Sequence[Sequence[Attempt]]) -> list[dict[str, Any]]:
    """One row a remedy, from cheap to dear by its mean live share.

    ``mended`` counts the answers that it gives back, ``cumulative`` those that it or a cheaper one does, ``cheapest``
    those for which no other needs fewer live tokens. A remedy that could be tried on no answer has no row.

    Args:
        names: The remedies' names, in the order of the ladder.
        attempts: For each changed answer, what was tried.
    """
    best = [cheapest(names, own) for own in attempts]
    shares = {}
    for name in names:
        tried = [attempt.live_share for own in attempts for attempt in own if attempt.remedy == name]
        if tried:
            shares[name] = math.fsum(tried) / len(tried)
    so_far: set[int] = set()
    rows = []
    for name in sorted(shares, key=lambda name: shares[name]):
        own_attempts = [[attempt for attempt in own if attempt.remedy == name] for own in attempts]
        mended = {at for at, own in enumerate(own_attempts) if any(attempt.restored for attempt in own)}
        so_far |= mended
        rows.append(
            {
                "remedy": name,
                "live_share": shares[name],
                "tried": sum(bool(own) for own in own_attempts),
                "mended": len(mended),
                "mended_share": len(mended) / len(attempts),
                "cumulative": len(so_far),
                "cumulative_share": len(so_far) / len(attempts),
                "cheapest": sum(one is not None and one.remedy == name for one in best),
            }
        )
    return rows


def cheapest(names: Sequence[str], attempts: Sequence[Attempt]) -> Attempt | None:
    """The successful attempt with the fewest live tokens; among equals the one whose remedy is named first."""
    restoring = [attempt for attempt in attempts if attempt.restored]
    return min(restoring, key=lambda one: (one.live_tokens, names.index(one.remedy)), default=None)


def _in_order(values: Collection[str]) -> list[str]:
    known = [*TASKS, *DISTANCES, *QUARTERS]
    return sorted(values, key=lambda value: (known.index(value) if value in known else -1, value))
