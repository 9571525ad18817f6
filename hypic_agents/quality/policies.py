"""Which policies an evaluation compares. No torch: the command line reads these names before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypic_agents.runtime.policy import PRESETS, ReusePolicy
from hypic_agents.runtime.policy_file import PREFIX, resolve_policy

# Prefix reuse is full recompute with fewer tokens: there is nothing to compare.
EVALUATED: Final = ("exact", *(name for name, policy in PRESETS.items() if not (policy.exact or policy.prefix)))
SEAMS: Final = (0, 3, 4, 8, 16, 32)
ALONE: Final = ",condition_on_system=false,lead_max=0"
# Longer than a chat template's headers and the words before tool specs, shorter than a question.
_LEAD: Final = 32


def named_policy(spec: str | ReusePolicy, fingerprint: str) -> ReusePolicy:
    """The policy that a result speaks of by ``spec``: one from a file goes by ``file:PATH``, not by its own name.

    Raises:
        InvalidPolicy: no such policy, or its file is at fault or belongs to another model than ``fingerprint``.
    """
    policy = resolve_policy(spec, fingerprint)
    return policy.with_(name=spec) if isinstance(spec, str) and spec.startswith(PREFIX) else policy


def sweep_policies(seams: Sequence[int] = SEAMS) -> tuple[str, ...]:
    """``exact``, and every head seam with segments built alone and behind the system prompt."""
    return (
        "exact",
        *(f"hypic:head_seam={seam}{built}" for built in (ALONE, "") for seam in seams),
    )


def pareto_policies() -> tuple[str, ...]:
    """``exact``, and ways of repair over a range of live tokens: wider seams alone, and what may do better."""
    seams_only = tuple(f"hypic:head_seam={seam}{ALONE}" for seam in (0, 8, 16, 32))
    behind_system = tuple(f"hypic:head_seam={seam},lead_max=0" for seam in (3, 8, 16))
    lead = f"lead_max={_LEAD},tail_seam=0"
    behind_lead = tuple(f"hypic:head_seam={seam},{lead}" for seam in (0, 3))
    pointed = tuple(
        f"hypic:head_seam=3,{built},{spent}"
        for built in ("tail_seam=0", lead)
        for spent in ("recompute_pointed=0.05,piece_len=32", "recompute_pointed=0.1,piece_len=32")
    )
    return ("exact", "hypic", *seams_only, *behind_system, *behind_lead, *pointed)
