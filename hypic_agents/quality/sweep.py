"""The curve of a seam sweep, out of an evaluation's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypic_agents.runtime.policy import parse_policy


def curve(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One flat row a policy of the sweep, by building rule and seam."""
    rows = []
    for spec, mean in result["mean"].items():
        policy = parse_policy(spec)
        if policy.exact:
            continue
        rows.append(
            {
                "built": "behind the system prompt" if policy.condition_on_system else "alone",
                "seam": policy.head_seam,
                "score": mean["score"],
                "gap_points": mean["gap_points"],
                "gap_low": mean["gap_ci95"][0],
                "gap_high": mean["gap_ci95"][1],
                "kl": mean["kl"],
                "live_share": mean["live_share"],
            }
        )
    return sorted(rows, key=lambda row: (row["built"], row["seam"]))
