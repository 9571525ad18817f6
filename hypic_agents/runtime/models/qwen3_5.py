"""Adapters of the Qwen3.5 family (qwen3_next, qwen3_5, qwen3_5_moe): gated delta rule and gated full attention.

Source: transformers' modeling files of the three architectures; the delta rule is that of arXiv 2412.06464.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypic_agents.runtime.attention.mixer import AttentionMixer
from hypic_agents.runtime.linear.mixer import LinearMixer, Projected
from hypic_agents.runtime.models.adopt import adopt


class GatedDeltaMixer(LinearMixer):
    """Gated delta rule of qwen3_5 and qwen3_5_moe."""

    in_proj_qkv: nn.Linear
    in_proj_z: nn.Linear
    in_proj_b: nn.Linear
    in_proj_a: nn.Linear
    conv1d: nn.Conv1d
    out_proj: nn.Linear
    norm: nn.Module
    A_log: Tensor
    dt_bias: Tensor

    def __init__(self, source: Any) -> None:
        super().__init__()
        adopt(self, source)
        self.layer_idx = source.layer_idx
        self.conv_width = source.conv_kernel_size
        self.num_key_heads = source.num_k_heads
        self.num_value_heads = source.num_v_heads
        self.key_dim = source.head_k_dim
        self.value_dim = source.head_v_dim

    def project(self, hidden: Tensor) -> Projected:
        return self._gates(
            self.in_proj_qkv(hidden), self.in_proj_z(hidden), self.in_proj_b(hidden), self.in_proj_a(hidden)
        )

    def _gates(self, qkv: Tensor, z: Tensor, b: Tensor, a: Tensor) -> Projected:
        log_decay = -self.A_log.float().exp() * F.softplus(a.float() + self.dt_bias)
        return Projected(qkv, log_decay, b.sigmoid(), z)

    def conv_weight(self) -> tuple[Tensor, Tensor | None]:
        return self.conv1d.weight.squeeze(1), self.conv1d.bias

    def split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mixed = F.silu(mixed)
        keys = self.num_key_heads * self.key_dim
        q, k, v = mixed.split((keys, keys, self.num_value_heads * self.value_dim), dim=-1)
        q = _unit(q.unflatten(-1, (self.num_key_heads, self.key_dim)).float()) * self.key_dim**-0.5
        k = _unit(k.unflatten(-1, (self.num_key_heads, self.key_dim)).float())
        groups = self.num_value_heads // self.num_key_heads
        if groups > 1:
            q, k = q.repeat_interleave(groups, dim=1), k.repeat_interleave(groups, dim=1)
        return q, k, v.unflatten(-1, (self.num_value_heads, self.value_dim))

    def finish(self, outputs: Tensor, rest: Any) -> Tensor:
        z = rest.reshape(-1, self.value_dim)
        normed = self.norm(outputs.reshape(-1, self.value_dim).to(rest.dtype), z)
        projected: Tensor = self.out_proj(normed.view(rest.shape))
        return projected


class Qwen3NextDeltaMixer(GatedDeltaMixer):
    """The same rule with the fused, head-grouped projections of qwen3_next."""

    in_proj_qkvz: nn.Linear
    in_proj_ba: nn.Linear

    def project(self, hidden: Tensor) -> Projected:
        groups = self.num_value_heads // self.num_key_heads
        sizes = [self.key_dim, self.key_dim, groups * self.value_dim, groups * self.value_dim]
        q, k, v, z = self.in_proj_qkvz(hidden).unflatten(-1, (self.num_key_heads, -1)).split(sizes, dim=-1)
        b, a = self.in_proj_ba(hidden).unflatten(-1, (self.num_key_heads, -1)).split((groups, groups), dim=-1)
        qkv = torch.cat([x.flatten(-2) for x in (q, k, v)], dim=-1)
        return self._gates(qkv, z.flatten(-2), b.flatten(-2), a.flatten(-2))


class GatedAttentionMixer(AttentionMixer):
    """Full attention with normed queries and keys, partial RoPE and an output gate."""

    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    o_proj: nn.Linear
    q_norm: nn.Module
    k_norm: nn.Module

    def __init__(self, source: Any) -> None:
        super().__init__()
        adopt(self, source)
        self.layer_idx = source.layer_idx
        self.head_dim = source.head_dim
        self.scaling = source.scaling

    def queries(self, hidden: Tensor) -> tuple[Tensor, Any]:
        q, gate = self.q_proj(hidden).unflatten(-1, (-1, 2 * self.head_dim)).chunk(2, dim=-1)
        return self.q_norm(q), gate.flatten(-2)

    def keys_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        k = self.k_proj(hidden).unflatten(-1, (-1, self.head_dim))
        return self.k_norm(k), self.v_proj(hidden).unflatten(-1, (-1, self.head_dim))

    def finish(self, outputs: Tensor, rest: Any) -> Tensor:
        projected: Tensor = self.o_proj(outputs.flatten(-2) * torch.sigmoid(rest))
        return projected


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)
