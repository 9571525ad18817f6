"""The linear-attention mixer that a family adapter fills in: project, gates, finish."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypic_agents.runtime.batch import PackedBatch
from hypic_agents.runtime.linear.chain import ChainResult, run_chain
from hypic_agents.runtime.linear.conv import causal_conv, conv_sources
from hypic_agents.runtime.ops.chunk_rule import chunk_factors
from hypic_agents.runtime.state import LinearState


@dataclass(frozen=True, slots=True)
class LinearOutputs:
    """What one linear layer leaves behind: the chain's result and conv tails of rows and captures ``[., width, C]``."""

    chain: ChainResult
    tails: Tensor
    capture_tails: Tensor


@dataclass(frozen=True, slots=True)
class Projected:
    """One layer's inputs to token mixing. ``conv_inputs [T, C]``, ``beta [T, H]`` or None, ``log_decay [T, H]``
    (or ``[T, H, K]``), and whatever the adapter's ``finish`` needs as ``rest``."""

    conv_inputs: Tensor
    log_decay: Tensor
    beta: Tensor | None
    rest: Any


class LinearMixer(nn.Module):
    """Token mixing of one linear-attention layer over a packed batch."""

    layer_idx: int
    conv_width: int

    @abstractmethod
    def project(self, hidden: Tensor) -> Projected:
        """``[T, D]`` to the layer's inputs."""

    @abstractmethod
    def conv_weight(self) -> tuple[Tensor, Tensor | None]:
        """Weight ``[C, conv_width]`` and bias ``[C]`` or None."""

    @abstractmethod
    def split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Convolved inputs ``[T, C]`` to q, k ``[T, H, K]`` (q scaled, both normalised) and v ``[T, H, V]``."""

    @abstractmethod
    def finish(self, outputs: Tensor, rest: Any) -> Tensor:
        """Outputs ``[T, H, V]`` to ``[T, D]``."""

    def forward(self, hidden_states: Tensor, hypic_batch: PackedBatch, **_: Any) -> Tensor:
        hidden = hidden_states.squeeze(0)
        mix = self._mix_blocks if hypic_batch.blocks else self._mix
        mixed, hypic_batch.outputs[self.layer_idx] = mix(hidden, hypic_batch)
        return mixed.unsqueeze(0)

    def _mix_blocks(self, hidden: Tensor, batch: PackedBatch) -> tuple[Tensor, LinearOutputs]:
        """A long row, block after block: each continues from the state that the one before left."""
        mixed = torch.empty_like(hidden)
        left: list[LinearOutputs] = []
        start = 0
        for block in batch.blocks:
            if left:
                state = LinearState(left[-1].chain.end_state[0], left[-1].tails[0])
                past = block.rows[0].past
                assert past is not None
                # One list serves all layers in turn: each takes all blocks before the next layer begins.
                past.layers = [state] * (self.layer_idx + 1)
            stop = start + len(block.token_ids)
            before = left[-1].chain if left else None
            mixed[start:stop], outputs = self._mix(hidden[start:stop], block, before)
            left.append(outputs)
            start = stop
        return mixed, _joined(left)

    def _mix(
        self, hidden: Tensor, batch: PackedBatch, before: ChainResult | None = None
    ) -> tuple[Tensor, LinearOutputs]:
        made = self.project(hidden)
        sources = conv_sources(made.conv_inputs, batch, self.layer_idx)
        weight, bias = self.conv_weight()
        q, k, v = self.split(causal_conv(sources, weight, bias, batch))
        factors = chunk_factors(
            _to_chunks(q, batch),
            _to_chunks(k, batch),
            _to_chunks(v, batch),
            _to_chunks(made.log_decay, batch),
            None if made.beta is None else _to_chunks(made.beta, batch),
        )
        outputs, chain = run_chain(factors, batch, self.layer_idx, before)
        mixed = self.finish(_from_chunks(outputs, batch), made.rest)
        return mixed, LinearOutputs(chain, _pick(sources, batch.tail_sources), _pick(sources, batch.capture_tails))


def _joined(left: list[LinearOutputs]) -> LinearOutputs:
    """What a row leaves behind that ran in blocks."""
    captured = [one.chain.captured for one in left if one.chain.captured is not None]
    chain = replace(left[-1].chain, captured=torch.cat(captured) if captured else None)
    return LinearOutputs(chain, left[-1].tails, torch.cat([one.capture_tails for one in left]))


def _to_chunks(x: Tensor, batch: PackedBatch) -> Tensor:
    """``[T, H, ...]`` to ``[N, H, C, ...]`` in float32, zeros where padded."""
    grid = batch.grid
    x = x.float() if x.dtype != torch.float64 else x
    padding = grid.numel() - x.shape[0]
    if batch.in_order:
        chunks = F.pad(x.flatten(1), (0, 0, 0, padding)) if padding else x
    else:
        padded = F.pad(x.flatten(1), (0, 0, 0, 1)) if padding else x
        chunks = padded.index_select(0, grid.reshape(-1))
    return chunks.view(*grid.shape, *x.shape[1:]).transpose(1, 2).contiguous()


def _from_chunks(chunks: Tensor, batch: PackedBatch) -> Tensor:
    """``[N, H, C, V]`` to ``[T, H, V]``."""
    slots = chunks.transpose(1, 2).flatten(0, 1)
    return slots[: len(batch.token_ids)] if batch.in_order else slots.index_select(0, batch.ungrid)


def _pick(sources: Tensor, index: Tensor) -> Tensor:
    return sources.index_select(0, index.reshape(-1)).view(*index.shape, sources.shape[-1])
