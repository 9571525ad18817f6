"""A transformers model with our token mixing: embeddings, norms, MLPs, MoE and head stay transformers' own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hypic_agents.runtime.attention.mixer import AttentionMixer, AttentionOutputs
from hypic_agents.runtime.batch import PackedBatch, Row
from hypic_agents.runtime.linear.mixer import LinearMixer, LinearOutputs
from hypic_agents.runtime.models.adopt import run_blockwise
from hypic_agents.runtime.models.fast_linear import use_fast_linear
from hypic_agents.runtime.pack import pack
from hypic_agents.runtime.state import LinearState, RowState


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """Logits ``[n, vocab]`` of the asked tokens, and the batch that carries every layer's outputs."""

    logits: Tensor
    batch: PackedBatch


class HybridModel:
    """Runs packed batches through a transformers causal LM whose mixers were replaced.

    Attributes:
        hf: The transformers model; its state dict is unchanged.
        window: Longest sequence in tokens.
    """

    def __init__(self, hf: Any, decoder: Any, config: Any) -> None:
        self.hf = hf
        self._decoder = decoder
        self.config = config
        self.window: int = config.max_position_embeddings
        self.vocab_size: int = config.vocab_size
        self.mixers: list[LinearMixer | AttentionMixer] = [
            layer.linear_attn if hasattr(layer, "linear_attn") else layer.self_attn for layer in decoder.layers
        ]
        self.conv_width = max((m.conv_width for m in self.mixers if isinstance(m, LinearMixer)), default=1)
        self._rope: tuple[Tensor, Tensor] | None = None

    @property
    def device(self) -> torch.device:
        return self.hf.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        return self.hf.dtype  # type: ignore[no-any-return]

    def rope_table(self, length: int) -> tuple[Tensor, Tensor]:
        """cos and sin ``[at least length, rotary_dim]``, made by the model's own rotary module."""
        if self._rope is None or self._rope[0].shape[0] < length:
            size = max(1024, 1 << (length - 1).bit_length())
            positions = torch.arange(size, device=self.device)[None]
            probe = torch.empty(0, dtype=self.dtype, device=self.device)
            with torch.no_grad():
                cos, sin = self._decoder.rotary_emb(probe, positions)
            self._rope = (cos.squeeze(0), sin.squeeze(0))
        return self._rope

    def pack(self, rows: Sequence[Row]) -> PackedBatch:
        return pack(rows, self.conv_width, self.device)

    def forward(self, rows: Sequence[Row]) -> ForwardResult:
        """One packed pass. Rows with ``past`` have their key buffers extended in place."""
        batch = self.pack(rows)
        hidden = self._decoder.embed_tokens(batch.token_ids)[None]
        rope = self.rope_table(max(row.end for row in rows))
        *layers, last = self._decoder.layers
        for layer in layers:
            hidden = layer(hidden, position_embeddings=rope, attention_mask=None, hypic_batch=batch)
        picked = self._last_layer(last, hidden, rope, batch)
        logits = self.hf.lm_head(self._decoder.norm(picked))
        return ForwardResult(logits, batch)

    def _last_layer(self, layer: Any, hidden: Tensor, rope: tuple[Tensor, Tensor], batch: PackedBatch) -> Tensor:
        """What the last layer makes of the tokens whose logits are wanted, ``[n, D]``.

        Nothing reads its outputs at other tokens: of those, full attention needs the keys and values alone.
        """
        wanted, mixer = batch.logit_index, self.mixers[-1]
        keywords: dict[str, Any] = {"position_embeddings": rope, "attention_mask": None, "hypic_batch": batch}
        if isinstance(mixer, AttentionMixer) and len(wanted) < len(batch.token_ids):
            keywords["hypic_context"] = context = layer.input_layernorm(hidden)
            if not len(wanted):  # an MLP of experts need not take no tokens
                mixer(context[:, :0], **keywords)
                return hidden[0, :0]
            picked: Tensor = layer(hidden.index_select(1, wanted), **keywords)
            return picked.squeeze(0)
        whole: Tensor = layer(hidden, **keywords)
        return whole.squeeze(0).index_select(0, wanted)

    def row_states(self, result: ForwardResult) -> list[RowState]:
        """The state of every row after the pass, ready to be continued."""
        states = [RowState(length=row.end) for row in result.batch.rows]
        for i in range(len(self.mixers)):
            outputs = result.batch.outputs[i]
            for r, state in enumerate(states):
                if isinstance(outputs, LinearOutputs):
                    state.layers.append(LinearState(outputs.chain.end_state[r], outputs.tails[r]))
                else:
                    assert isinstance(outputs, AttentionOutputs)
                    state.layers.append(outputs.buffers[r])
        return states


def install_mixers(decoder: Any, linear: Any, attention: Any) -> None:
    """Replace every decoder layer's mixer by ours, built from its weights."""
    for layer in decoder.layers:
        if hasattr(layer, "linear_attn"):
            layer.linear_attn = linear(layer.linear_attn)
        else:
            layer.self_attn = attention(layer.self_attn)
        run_blockwise(layer)
        use_fast_linear(layer)
    assert isinstance(decoder, nn.Module)
