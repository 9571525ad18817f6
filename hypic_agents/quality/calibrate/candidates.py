"""The policies that a calibration tries. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypic_agents.errors import InvalidPolicy
from hypic_agents.runtime.policy import ReusePolicy
from hypic_agents.runtime.policy_file import load_policy

# From the least live tokens to the most: one step about doubles what is live, and the last steps exist so that a
# careful choice need not be full recompute at once.
LADDER: Final = (
    *(f"hypic:head_seam={seam}" for seam in (4, 8, 16, 32, 64, 128)),
    *(f"hypic:head_seam={seam},condition_on_system=false,lead_max=0" for seam in (4, 16, 64)),
    "hypic:head_seam=3,tail_seam=0,lead_max=32",
    "hypic:head_seam=3,tail_seam=0,lead_max=32,recompute_pointed=0.1,piece_len=32",
    "hypic:tail_seam=8",
    "hypic:head_seam=16,tail_seam=16",
)


def make_candidates(specs: Sequence[str] = (), *, ladder: bool = True) -> tuple[ReusePolicy, ...]:
    """``exact`` first, then the ladder, then ``specs``; equal policies once.

    Raises:
        InvalidPolicy: an unknown policy, a policy file that cannot be read, or one of prefix reuse.
    """
    unique: dict[ReusePolicy, ReusePolicy] = {}
    for spec in ("exact", *(LADDER if ladder else ()), *specs):
        policy = load_policy(spec)
        if policy.prefix:
            raise InvalidPolicy(
                f"{spec!r} is no candidate: prefix reuse is exact, and what it saves depends on the order of requests"
            )
        unique.setdefault(policy.with_(name=""), policy)
    return tuple(unique.values())
