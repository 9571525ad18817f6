"""The full-attention mixer: live queries over all keys of their row, cached keys placed at their positions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypic_agents.runtime.attention.rotary import rotate
from hypic_agents.runtime.batch import LiveRun, PackedBatch, QueryBlock, ReusedRun, Row
from hypic_agents.runtime.state import AttentionPayload, KVBuffer

QUERY_BLOCK = 128


@dataclass(frozen=True, slots=True)
class AttentionOutputs:
    """What one attention layer leaves behind.

    Attributes:
        keys, values: ``[T, Hkv, D]`` of the live tokens, keys without RoPE.
        buffers: Per row, all its keys (RoPE applied) and values.
    """

    keys: Tensor
    values: Tensor
    buffers: tuple[KVBuffer, ...]


class AttentionMixer(nn.Module):
    """Token mixing of one full-attention layer over a packed batch."""

    layer_idx: int
    scaling: float

    @abstractmethod
    def project(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor, Any]:
        """``[T, D]`` to q ``[T, H, D]``, k, v ``[T, Hkv, D]`` (normalised, no RoPE) and what ``finish`` needs."""

    @abstractmethod
    def finish(self, outputs: Tensor, rest: Any) -> Tensor:
        """Outputs ``[T, H, D]`` to ``[T, hidden]``."""

    def forward(
        self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], hypic_batch: PackedBatch, **_: Any
    ) -> tuple[Tensor, None]:
        batch = hypic_batch
        cos, sin = position_embeddings
        q, k, v, rest = self.project(hidden_states.squeeze(0))
        q = rotate(q, cos[batch.positions], sin[batch.positions])
        outputs = []
        buffers = []
        for r, row in enumerate(batch.rows):
            live = batch.row_slices[r]
            keys, values = _row_keys(row, k[live], v[live], self.layer_idx)
            at = key_positions(batch, r)
            keys = rotate(keys, cos[at], sin[at])
            if row.past is None:
                buffer = KVBuffer(keys, values, keys.shape[0])
            else:
                past = row.past.layers[self.layer_idx]
                assert isinstance(past, KVBuffer)
                buffer = past
                keys, values = past.extend(keys, values, row.start)
            buffers.append(buffer)
            outputs.extend(self._attend_row(batch, r, q[live], keys, values))
        batch.outputs[self.layer_idx] = AttentionOutputs(k, v, tuple(buffers))
        return self.finish(torch.cat(outputs), rest).unsqueeze(0), None

    def _attend_row(self, batch: PackedBatch, r: int, q: Tensor, keys: Tensor, values: Tensor) -> list[Tensor]:
        return [
            self._attend(q[block.start : block.stop], keys[: block.num_keys], values[: block.num_keys], block.mask)
            for block in query_blocks(batch, r, keys.shape[0])
        ]

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1).unsqueeze(0),
            keys.transpose(0, 1).unsqueeze(0),
            values.transpose(0, 1).unsqueeze(0),
            attn_mask=mask,
            is_causal=mask is None and q.shape[0] > 1,
            scale=self.scaling,
            enable_gqa=q.shape[1] != keys.shape[1],
        )
        return out.squeeze(0).transpose(0, 1)


def _row_keys(row: Row, k: Tensor, v: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Keys (no RoPE) and values of everything the row's elements cover, in order of position."""
    if len(row.elements) == 1 and isinstance(row.elements[0], LiveRun):
        return k, v
    keys, values = [], []
    used = 0
    for element in row.elements:
        if isinstance(element, ReusedRun):
            payload = element.payload.layers[layer]
            assert isinstance(payload, AttentionPayload)
            keys.append(payload.keys)
            values.append(payload.values)
        else:
            keys.append(k[used : used + element.length])
            values.append(v[used : used + element.length])
            used += element.length
    return torch.cat(keys), torch.cat(values)


def key_positions(batch: PackedBatch, r: int) -> Tensor:
    """Positions ``[new keys]`` at which a row's keys are placed."""
    if r not in batch.key_positions:
        row = batch.rows[r]
        device = batch.positions.device
        at = torch.arange(row.start, row.end, device=device)
        for element in row.elements:
            if isinstance(element, ReusedRun) and not element.place_rope:
                built = next(p.position for p in element.payload.layers if isinstance(p, AttentionPayload))
                first = element.start - row.start
                at[first : first + element.length] = torch.arange(built, built + element.length, device=device)
        batch.key_positions[r] = at
    return batch.key_positions[r]


def query_blocks(batch: PackedBatch, r: int, num_keys: int) -> list[QueryBlock]:
    """How a row's live tokens attend: a live token sees every key at or before its position.

    Live tokens are scattered, and most keys lie behind the early ones, so blocks of queries stop at the last key they
    see; this also bounds the masks. The blocks are the same in every layer.
    """
    if r not in batch.query_blocks:
        row = batch.rows[r]
        positions = batch.positions[batch.row_slices[r]]
        count = len(positions)
        if row.mask is not None or count in (1, num_keys):
            batch.query_blocks[r] = [QueryBlock(0, count, num_keys, row.mask)]
        else:
            at = torch.arange(num_keys, device=positions.device)
            blocks = []
            for start in range(0, count, QUERY_BLOCK):
                stop = min(start + QUERY_BLOCK, count)
                seen = int(positions[stop - 1]) + 1
                blocks.append(QueryBlock(start, stop, seen, positions[start:stop, None] >= at[:seen]))
            batch.query_blocks[r] = blocks
    return batch.query_blocks[r]
