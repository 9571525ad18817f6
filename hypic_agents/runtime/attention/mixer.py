"""The full-attention mixer: live queries over all keys of their row, cached keys placed at their positions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypic_agents.runtime.attention.rotary import rotate, rotate_
from hypic_agents.runtime.batch import PackedBatch, QueryBlock, ReusedRun, Row
from hypic_agents.runtime.state import AttentionPayload, KVBuffer, joined

QUERY_BLOCK = 64


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
    def queries(self, hidden: Tensor) -> tuple[Tensor, Any]:
        """``[T, D]`` to q ``[T, H, D]`` (normalised, no RoPE) and what ``finish`` needs."""

    @abstractmethod
    def keys_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """``[T, D]`` to k, v ``[T, Hkv, D]`` (k normalised, no RoPE)."""

    @abstractmethod
    def finish(self, outputs: Tensor, rest: Any) -> Tensor:
        """Outputs ``[T, H, D]`` to ``[T, hidden]``."""

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        hypic_batch: PackedBatch,
        hypic_context: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """``hidden_states [1, T, D]`` of all live tokens; or, beside these as ``hypic_context``, those ``[1, n, D]`` of
        the tokens whose logits are wanted: then only they attend."""
        batch = hypic_batch
        hidden = hidden_states.squeeze(0)
        cos, sin = position_embeddings
        k, v = self.keys_values(hidden if hypic_context is None else hypic_context.squeeze(0))
        q, rest = self.queries(hidden)
        picked = None if hypic_context is None else batch.logit_index
        at = batch.positions if picked is None else batch.positions.index_select(0, picked)
        q = rotate(q, cos[at], sin[at])
        # One rotation for all rows that reuse nothing: their keys stand where their live tokens do.
        placed = None if all(map(_reuses, batch.rows)) else rotate(k, cos[batch.positions], sin[batch.positions])
        outputs = [q[:0]]
        buffers = []
        used = 0
        for r, row in enumerate(batch.rows):
            live = batch.row_slices[r]
            if placed is not None and not _reuses(row):
                new = KVBuffer(placed[live], v[live], live.stop - live.start)
            else:
                new = _gathered(row, k[live], v[live], self.layer_idx)
                at = key_positions(batch, r)
                place(new, cos[at], sin[at])
            keys, values, buffer = self._behind_past(row, new)
            buffers.append(buffer)
            count = live.stop - live.start if picked is None else row.logits_from
            outputs += [
                self._attend(q[used + b.start : used + b.stop], keys[: b.num_keys], values[: b.num_keys], b.mask)
                for b in query_blocks(batch, r, keys.shape[0], count, q.dtype)
            ]
            used += count
        batch.outputs[self.layer_idx] = AttentionOutputs(k, v, tuple(buffers))
        return self.finish(torch.cat(outputs), rest).unsqueeze(0), None

    def _behind_past(self, row: Row, new: KVBuffer) -> tuple[Tensor, Tensor, KVBuffer]:
        """All keys (RoPE applied) and values of a row, past ones first, and the buffer that holds them."""
        keys, values = new.keys[: new.length], new.values[: new.length]
        if row.past is None:
            return keys, values, new
        past = row.past.layers[self.layer_idx]
        assert isinstance(past, KVBuffer)
        return *past.extend(keys, values, row.start), past

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


def _reuses(row: Row) -> bool:
    return any(isinstance(element, ReusedRun) for element in row.elements)


def _gathered(row: Row, k: Tensor, v: Tensor, layer: int) -> KVBuffer:
    """Keys (no RoPE) and values of everything the row's elements cover, in order of position, with the row's room."""
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
    return KVBuffer(joined(keys, row.room), joined(values, row.room), row.end - row.start)


def place(buffer: KVBuffer, cos: Tensor, sin: Tensor) -> None:
    """Apply RoPE to a buffer's keys, in place where no gradient needs them as they were."""
    if buffer.keys.requires_grad:
        buffer.keys = rotate(buffer.keys, cos, sin)
    else:
        rotate_(buffer.keys[: buffer.length], cos, sin)


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


def query_blocks(
    batch: PackedBatch, r: int, num_keys: int, count: int, dtype: torch.dtype = torch.float32
) -> list[QueryBlock]:
    """How the last ``count`` live tokens of a row attend: each sees every key at or before its position.

    Live tokens are scattered, and most keys lie behind the early ones, so blocks of queries stop at the last key they
    see; this also bounds the masks. The blocks are the same in every layer with the same queries.
    """
    if (r, count) not in batch.query_blocks:
        mask = batch.rows[r].mask
        positions = batch.positions[batch.row_slices[r]]
        positions = positions[len(positions) - count :]
        if count and (mask is not None or count in (1, num_keys)):
            whole = QueryBlock(0, count, num_keys, None if mask is None else mask[mask.shape[0] - count :])
            batch.query_blocks[r, count] = [whole]
        else:
            batch.query_blocks[r, count] = _cut_queries(positions, num_keys, dtype)
    return batch.query_blocks[r, count]


def _cut_queries(positions: Tensor, num_keys: int, dtype: torch.dtype) -> list[QueryBlock]:
    """Blocks of queries at ascending positions ``[n]``.

    Where a block's queries are neighbours, its mask is a part of one that all such blocks share: as large as a block,
    however many there are. On a CPU only: elsewhere attention asks for masks that are aligned.
    """
    blocks = []
    at = torch.arange(num_keys, device=positions.device)
    shared: Tensor | None = None
    on_cpu = positions.device.type == "cpu"
    for start in range(0, len(positions), QUERY_BLOCK):
        stop = min(start + QUERY_BLOCK, len(positions))
        seen = int(positions[stop - 1]) + 1
        if on_cpu and seen - int(positions[start]) == stop - start:
            if shared is None:
                last = torch.arange(num_keys - QUERY_BLOCK, num_keys, device=positions.device)
                shared = positions.new_zeros(QUERY_BLOCK, num_keys, dtype=dtype)
                shared.masked_fill_(last[:, None] < at, float("-inf"))
            mask = shared[QUERY_BLOCK - (stop - start) :, num_keys - seen :]
        else:
            mask = positions[start:stop, None] >= at[:seen]
        blocks.append(QueryBlock(start, stop, seen, mask))
    return blocks
