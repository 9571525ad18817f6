"""Smaller payloads: states and transitions rounded, transitions that have vanished dropped, others in thin factors.

Rounding happens once, when a built segment is offered to the store, and the request that built it uses the rounded
payload too. So a cold request still answers as a warm one, and the disk, which keeps the rounded numbers in few bytes,
gives back exactly what memory held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import torch

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.base import SegmentStore, StoreStats, Wanted
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.invalidation import VersionOrder
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.low_rank import FactoredPayload, LowRank, factored
from hypic_agents.runtime.payload_codec import Numbers, SegmentCodec
from hypic_agents.runtime.state import AttentionPayload, LinearPayload, SegmentPayload


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is given up of a payload. Keys, values, conv tails and checkpoints stay as they are.

    Attributes:
        numbers: "float32" as built; "bfloat16", each number off by at most 1 part in 256; "int8", each off by at most
            1/127 of the largest of its row.
        drop_below: A head whose transition has a Frobenius norm below this has none any more. The spectral norm is no
            larger, so what is lost of an incoming state S is at most ``drop_below * |S|``.
        low_rank_within: Heads whose transition is within this Frobenius norm of ``gamma I`` minus a product of factors
            that take less are stored as those; 0 stores none so. Costs a few singular value decompositions a head.

    Raises:
        InvalidInput: no such numbers, or a negative norm.
    """

    numbers: Numbers = "float32"
    drop_below: float = 0.0
    low_rank_within: float = 0.0

    def __post_init__(self) -> None:
        if self.numbers not in get_args(Numbers):
            raise InvalidInput(f"numbers={self.numbers!r}: use {', '.join(get_args(Numbers))}")
        if not self.drop_below >= 0:
            raise InvalidInput(f"drop_below={self.drop_below}: use 0 or more")
        if not self.low_rank_within >= 0:
            raise InvalidInput(f"low_rank_within={self.low_rank_within}: use 0 or more")

    @property
    def recipe(self) -> str:
        """What it adds to the recipe of a key: other numbers make another payload."""
        low = f",low_rank_within={self.low_rank_within!r}" if self.low_rank_within else ""
        return f",numbers={self.numbers},drop_below={self.drop_below!r}{low}"


def compact(payload: SegmentPayload, compaction: Compaction) -> SegmentPayload:
    """The payload with rounded numbers, as it will come back from the disk."""
    if payload.is_checkpoint:
        return payload
    layers = tuple(
        _without_vanished(layer, compaction.drop_below) if isinstance(layer, LinearPayload) else layer
        for layer in payload.layers
    )
    rounded = replace(payload, layers=layers)
    if compaction.low_rank_within:
        factors = tuple(_factors(layer, compaction.low_rank_within) for layer in layers)
        rounded = FactoredPayload(layers, payload.length, factors=factors)
    elif compaction.numbers == "float32":
        return rounded
    device = layers[0].end_state.device if isinstance(layers[0], LinearPayload) else layers[0].keys.device
    codec = SegmentCodec(device, compaction.numbers)
    back = codec.decode(*codec.encode(replace(rounded, layers=tuple(map(_states_only, layers)))))
    kept = [
        replace(new, conv_tail=old.conv_tail)
        if isinstance(old, LinearPayload) and isinstance(new, LinearPayload)
        else old
        for old, new in zip(layers, back.layers, strict=True)
    ]
    return replace(back, layers=tuple(kept))


def transition_error(before: SegmentPayload, after: SegmentPayload) -> float:
    """The largest Frobenius norm of what any head's transition lost."""
    lost = [
        torch.linalg.matrix_norm(old.transition.double() - new.transition.double()).max().item()
        for old, new in zip(before.layers, after.layers, strict=True)
        if isinstance(old, LinearPayload) and isinstance(new, LinearPayload)
        if old.transition is not None and new.transition is not None and old.transition.dim() == 3
    ]
    return max(lost, default=0.0)


def _factors(layer: LinearPayload | AttentionPayload, within: float) -> LowRank | None:
    if not isinstance(layer, LinearPayload) or layer.transition is None or layer.transition.dim() != 3:
        return None
    return factored(layer.transition, within)


def _without_vanished(layer: LinearPayload, drop_below: float) -> LinearPayload:
    transition = layer.transition
    if transition is None or transition.dim() != 3 or not drop_below:
        return layer
    norms = torch.linalg.matrix_norm(transition)
    return replace(layer, transition=torch.where(norms[:, None, None] < drop_below, 0.0, transition))


def _states_only(layer: LinearPayload | AttentionPayload) -> LinearPayload | AttentionPayload:
    """Without the large parts that are not rounded, which need no copying to and fro."""
    if isinstance(layer, LinearPayload):
        return replace(layer, conv_tail=layer.conv_tail[:0])
    return AttentionPayload(layer.keys[:0], layer.values[:0], layer.position)


class CompactingStore:
    """A segment store that rounds what it is offered, over one that keeps it.

    Its entries have keys of their own, so that a directory may hold the same segment rounded and not. See
    :class:`~hypic_agents.runtime.cache.base.SegmentStore`; ``insert`` returns an entry that is not the one offered.
    """

    def __init__(self, store: SegmentStore, compaction: Compaction) -> None:
        self._store = store
        self._compaction = compaction

    @property
    def epoch(self) -> int:
        return self._store.epoch

    @property
    def version_order(self) -> VersionOrder:
        return self._store.version_order

    def acquire(self, key: SegmentKey, token_ids: Sequence[int]) -> SegmentEntry | None:
        return self._store.acquire(self._key(key), token_ids)

    def acquire_all(self, wanted: Sequence[Wanted]) -> list[SegmentEntry | None]:
        return self._store.acquire_all([(self._key(key), token_ids) for key, token_ids in wanted])

    def release(self, entry: SegmentEntry) -> None:
        self._store.release(entry)

    def insert(self, entry: SegmentEntry, *, pin: bool = False, since: int | None = None) -> SegmentEntry:
        assert isinstance(entry.payload, SegmentPayload)
        payload = compact(entry.payload, self._compaction)
        rounded = SegmentEntry(
            self._key(entry.key),
            entry.token_ids,
            payload,
            entry.source_id,
            entry.version,
            entry.depends_on,
            entry.build_s,
        )
        return self._store.insert(rounded, pin=pin, since=since)

    def evict(self, num_bytes: int) -> int:
        return self._store.evict(num_bytes)

    def invalidate(
        self,
        *,
        source_id: str | None = None,
        version_before: str | None = None,
        tenant: str | None = None,
        group: str | None = None,
    ) -> int:
        return self._store.invalidate(source_id=source_id, version_before=version_before, tenant=tenant, group=group)

    def flush(self) -> None:
        self._store.flush()

    def close(self) -> None:
        self._store.close()

    def check_integrity(self) -> None:
        self._store.check_integrity()

    def stats(self) -> StoreStats:
        return self._store.stats()

    def _key(self, key: SegmentKey) -> SegmentKey:
        return replace(key, recipe=key.recipe + self._compaction.recipe)
