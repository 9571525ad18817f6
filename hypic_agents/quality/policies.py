"""Which policies an evaluation compares. No torch: the command line reads these names before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypic_agents.runtime.policy import PRESETS

# Prefix reuse is full recompute with fewer tokens: there is nothing to compare.
EVALUATED: Final = ("exact", *(name for name, policy in PRESETS.items() if not (policy.exact or policy.prefix)))
SEAMS: Final = (0, 3, 4, 8, 16, 32)


def sweep_policies(seams: Sequence[int] = SEAMS) -> tuple[str, ...]:
    """``exact``, and every head seam with segments built alone and behind the system prompt."""
    return (
        "exact",
        *(
            f"hypic:head_seam={seam},condition_on_system={str(conditioned).lower()}"
            for conditioned in (False, True)
            for seam in seams
        ),
    )
