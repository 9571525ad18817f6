"""What answers cost: the points of an evaluation by live tokens and score, their front, and one cost looked at closely.

No torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from hypic_agents.runtime.policy import ReusePolicy, parse_policy

SEAM_ONLY: Final = "seams alone"
LIVE_BUDGET: Final = 0.15


def pareto(result: Mapping[str, Any]) -> dict[str, Any]:
    """``points``, ``front`` and ``at_15_percent`` out of an evaluation's result.

    Returns:
        ``points``: one flat row a policy, by live share (a share between 0 and 1; gaps in points below full recompute,
        with their 95 % interval; KL in nats a token). ``front``: the policies for which no other has as high a score
        with as few live tokens. ``at_15_percent``: the smallest measured gap with at most 15 % of the tokens live
        against the gap of seam-only repair at exactly 15 %, interpolated between its neighbouring points, or that of
        the nearest point where all lie on one side; ``ratio`` is None where seam-only repair has no gap.
    """
    rows: list[dict[str, Any]] = []
    for spec, mean in result["mean"].items():
        rows.append(
            {
                "policy": spec,
                "repair": repair_of(parse_policy(spec)),
                "live_share": mean["live_share"],
                "score": mean["score"],
                "gap_points": mean["gap_points"],
                "gap_low": mean["gap_ci95"][0],
                "gap_high": mean["gap_ci95"][1],
                "kl": mean["kl"],
            }
        )
    rows.sort(key=lambda row: (row["live_share"], -row["score"]))
    front = [row["policy"] for row in rows if not any(_beats(other, row) for other in rows)]
    points = [row | {"on_front": row["policy"] in front} for row in rows]
    return {"points": points, "front": front, "at_15_percent": _at(points, LIVE_BUDGET)}


def repair_of(policy: ReusePolicy) -> str:
    """How a policy repairs what segments cannot know of what stands before them, in words."""
    if policy.exact:
        return "full recompute"
    behind = (["system prompt"] if policy.condition_on_system else []) + (["lead"] if policy.lead_max else [])
    built = f"built behind {' and '.join(behind)}" if behind else SEAM_ONLY
    return f"{built}, pointed parts live" if policy.recompute_pointed else built


def _beats(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """As good in both, better in one."""
    score, live = one["score"] - other["score"], other["live_share"] - one["live_share"]
    return bool(min(score, live) >= 0 and max(score, live) > 0)


def _at(points: Sequence[Mapping[str, Any]], live: float) -> dict[str, Any] | None:
    """The best point of at most ``live`` against seam-only repair there; None without either."""
    line = [point for point in points if point["repair"] == SEAM_ONLY]
    affordable = [point for point in points if point["live_share"] <= live]
    if not line or not affordable:
        return None
    best = min(affordable, key=lambda point: (point["gap_points"], point["kl"]))
    between = _neighbours(line, live)
    seam_only_gap = _interpolate(between, live)
    return {
        "seam_only_gap": seam_only_gap,
        "seam_only_between": [point["policy"] for point in between],
        "best_gap": best["gap_points"],
        "best_gap_ci95": [best["gap_low"], best["gap_high"]],
        "best_live_share": best["live_share"],
        "best_policy": best["policy"],
        "ratio": best["gap_points"] / seam_only_gap if seam_only_gap > 0 else None,
    }


def _neighbours(line: Sequence[Mapping[str, Any]], live: float) -> tuple[Mapping[str, Any], ...]:
    """The two points around ``live``, or the nearest one; ``line`` is in order."""
    for low, high in pairwise(line):
        if low["live_share"] <= live < high["live_share"]:
            return low, high
    return (min(line, key=lambda point: abs(point["live_share"] - live)),)


def _interpolate(between: Sequence[Mapping[str, Any]], live: float) -> float:
    (from_live, from_gap), (to_live, to_gap) = (
        (float(point["live_share"]), float(point["gap_points"])) for point in (between[0], between[-1])
    )
    if len(between) == 1:
        return from_gap
    return from_gap + (live - from_live) / (to_live - from_live) * (to_gap - from_gap)
