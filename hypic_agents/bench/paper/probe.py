"""Attention scores of a question's tokens over the whole prompt, in one layer, as a real prefill computes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hypic_agents.bench.paper.states import prefill
from hypic_agents.core import Prompt
from hypic_agents.errors import UnsupportedModel
from hypic_agents.runtime.attention.mixer import AttentionMixer
from hypic_agents.runtime.attention.rotary import rotate
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.policy import ReusePolicy
from hypic_agents.runtime.state import KVBuffer


@dataclass(frozen=True, slots=True)
class Scores:
    """What the last ``rows`` tokens of a prompt see in one layer.

    Attributes:
        keys: ``[prompt, Hkv, D]``, RoPE applied.
        raw: ``[H, rows, prompt]`` scaled products of queries and keys, before the softmax.
    """

    keys: Tensor
    raw: Tensor

    @property
    def probabilities(self) -> Tensor:
        """``[H, rows, prompt]``, causal."""
        rows, length = self.raw.shape[-2:]
        future = torch.ones(rows, length, dtype=torch.bool, device=self.raw.device).triu(length - rows + 1)
        return self.raw.masked_fill(future, float("-inf")).softmax(-1)


def first_attention_layer(engine: Engine) -> AttentionMixer:
    """The lowest full-attention layer.

    Raises:
        UnsupportedModel: there is none.
    """
    for mixer in engine.model.mixers:
        if isinstance(mixer, AttentionMixer):
            return mixer
    raise UnsupportedModel(f"{engine.name!r} has no full-attention layer; there are no scores to compare")


def attention_scores(
    engine: Engine, mixer: AttentionMixer, prompt: Prompt, policy: ReusePolicy | str, rows: int
) -> Scores:
    """Scores of the prompt's last ``rows`` tokens, which must be live under ``policy``."""
    with _queries_of(mixer) as seen:
        state = prefill(engine, prompt, policy)
    buffer = state.layers[mixer.layer_idx]
    assert isinstance(buffer, KVBuffer)
    keys = buffer.keys[: buffer.length]
    queries = seen[-1][-rows:]  # passes before the last one built segments
    groups = queries.shape[1] // keys.shape[1]
    repeated = keys.float().repeat_interleave(groups, dim=1)
    return Scores(keys, torch.einsum("qhd,khd->hqk", queries.float(), repeated) * mixer.scaling)


@contextmanager
def _queries_of(mixer: AttentionMixer) -> Iterator[list[Tensor]]:
    """Queries ``[live tokens, H, D]`` with RoPE of every pass while open; the hook sits on this one layer and goes."""
    seen: list[Tensor] = []

    def look(_: Any, __: Any, kwargs: dict[str, Any]) -> None:
        q, _rest = mixer.queries(kwargs["hidden_states"].squeeze(0))
        cos, sin = kwargs["position_embeddings"]
        at = kwargs["hypic_batch"].positions
        seen.append(rotate(q, cos[at], sin[at]))

    hook = mixer.register_forward_pre_hook(look, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()
