"""Who changed an audited answer: an entry that is not what it should be, or reuse itself, and of which kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hypic_agents.runtime.audit.fallback import approximate_kinds, keep_live
from hypic_agents.runtime.audit.passes import Difference, Slices, payload_difference
from hypic_agents.runtime.audit.served import Divergence
from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.plan import Plan
from hypic_agents.runtime.state import SegmentPayload

# Relative error that is no rounding. A rebuild may be packed otherwise than the first build, so even healthy entries
# differ in the last bits: by 1e-5 in float32, by some hundredths in bfloat16 through many layers.
MOST_ERROR = 0.25


@dataclass(frozen=True, slots=True)
class Corruption:
    """A stored entry that its rebuild does not confirm."""

    kind: str
    entry: SegmentEntry
    difference: Difference

    def __str__(self) -> str:
        key = self.entry.key
        return (
            f"the entry of {self.kind} segment {self.entry.source_id or 'without a source'!r} ({key.num_tokens} "
            f"tokens, digest {key.digest[:12]}) differs from its rebuild by {self.difference.error:.3g} of its size "
            f"in {self.difference.where}"
        )


def find_corrupt(
    store: SegmentStore, plan: Plan, rebuilt: Mapping[SegmentKey, SegmentEntry], fingerprint: str
) -> list[Corruption]:
    """The plan's entries in ``store`` that differ from their rebuild, as far as both are there."""
    found: dict[SegmentKey, Corruption] = {}
    for kind, build in ((note.span.segment.kind, piece.build) for note in plan.notes for piece in note.pieces):
        key = build.key(fingerprint)
        entry = store.acquire(key, build.token_ids) if key in rebuilt and key not in found else None
        if entry is None:
            continue
        try:
            stored, fresh = entry.payload, rebuilt[key].payload
            assert isinstance(stored, SegmentPayload) and isinstance(fresh, SegmentPayload)
            difference = payload_difference(stored, fresh)
        finally:
            store.release(entry)
        if difference.error > MOST_ERROR:
            found[key] = Corruption(kind, entry, difference)
    return list(found.values())


def drop_entry(store: SegmentStore, entry: SegmentEntry) -> None:
    """Make an entry unfindable. The store forgets by source or tenant, so its neighbours go too and are rebuilt."""
    if entry.source_id:
        store.invalidate(source_id=entry.source_id, tenant=entry.key.scope.tenant)
    else:
        store.invalidate(tenant=entry.key.scope.tenant)


def attribute(
    plan: Plan, measure: Callable[[Plan], Slices[Divergence]], max_kl: float, reuse_kl: float
) -> Slices[frozenset[str]]:
    """Kinds that changed an answer: with one of them live, it comes out as under full recompute.

    If that holds for none alone, the kind that takes away most of the divergence is blamed, if that is half or more.

    Args:
        plan: The request's plan, under which healthy entries change the answer too.
        measure: Divergence of the answer from full recompute under another plan; called at most once a kind.
        max_kl: From here on, an answer counts as changed.
        reuse_kl: The divergence under ``plan``, nats a token.
    """
    kinds = sorted(approximate_kinds(plan))
    if len(kinds) < 2:
        return frozenset(kinds)
    left: dict[str, float] = {}
    mended = set()
    for kind in kinds:
        yield
        found = yield from measure(keep_live(plan, {kind: ""}))
        left[kind] = found.kl
        if not found.exceeds(max_kl):
            mended.add(kind)
    best = min(kinds, key=lambda kind: left[kind])
    if not mended and left[best] <= reuse_kl / 2:
        mended.add(best)
    return frozenset(mended)
