"""Verdicts to figures: by task and policy, and over the tasks. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hypic_agents.quality.statistics import Gap, mean_gap, paired_gap, share


class Judged(Protocol):
    """What is needed of a verdict."""

    @property
    def right(self) -> bool: ...
    @property
    def tokens(self) -> tuple[int, ...]: ...
    @property
    def agreements(self) -> int: ...
    @property
    def kl(self) -> float: ...


def summarise(
    tasks: Sequence[str], verdicts: Mapping[str, Sequence[Judged]], live_share: Mapping[str, float]
) -> dict[str, Any]:
    """``rows``, ``tasks``, ``mean`` and ``changed`` of an evaluation.

    Args:
        tasks: The task of every question.
        verdicts: By policy, in the order of ``tasks``; the first policy is the one that others are compared with.
        live_share: By policy, share of the prompt tokens that were computed.
    """
    reference = next(iter(verdicts.values()))
    names = list(dict.fromkeys(tasks))
    by_task: dict[str, dict[str, Any]] = {name: {} for name in names}
    mean: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for policy, given in verdicts.items():
        gaps: dict[str, Gap] = {}
        for name in names:
            at = [i for i, task in enumerate(tasks) if task == name]
            gaps[name] = paired_gap([reference[i].right for i in at], [given[i].right for i in at])
            by_task[name][policy] = {
                "score": share([given[i].right for i in at]),
                "gap_points": gaps[name].points,
                "gap_ci95": gaps[name].ci95,
                **_closeness([given[i] for i in at]),
                "questions": len(at),
            }
        scores = {name: by_task[name][policy]["score"] for name in names}
        gap = mean_gap([gaps[name] for name in names])
        mean[policy] = {
            "score": sum(scores[name] for name in names) / len(names),
            "gap_points": gap.points,
            "gap_ci95": gap.ci95,
            **_closeness(given),
            "live_share": live_share[policy],
        }
        changed[policy] = {
            "to_wrong": sum(a.right and not b.right for a, b in zip(reference, given, strict=True)),
            "to_right": sum(b.right and not a.right for a, b in zip(reference, given, strict=True)),
        }
        rows.append(
            {"policy": policy}
            | scores
            | {"mean": mean[policy]["score"], "gap": gap.points, "kl": mean[policy]["kl"]}
            | changed[policy]
            | {"live": live_share[policy]}
        )
    return {"rows": rows, "tasks": by_task, "mean": mean, "changed": changed}


def _closeness(verdicts: Sequence[Judged]) -> dict[str, float]:
    """How close the answers' distributions are, over all answer positions."""
    positions = sum(len(verdict.tokens) for verdict in verdicts)
    return {
        "top1_agreement": sum(verdict.agreements for verdict in verdicts) / positions,
        "kl": sum(verdict.kl for verdict in verdicts) / positions,
    }
