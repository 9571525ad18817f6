"""Random-weight models for tests and speed measurements: ``random:FAMILY[:SIZE]``.

Decays are initialised as flash-linear-attention does (A uniform in 1..16, dt log-uniform in 1e-3..0.1), because with
transformers' own initialisation every state vanishes within 64 tokens and nothing is left to compose.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from hypic_agents.errors import UnsupportedModel

# hidden size, layers, linear heads (key, value), head dims, attention heads and kv heads, MLP size
SIZES: dict[str, dict[str, int]] = {
    "2m": {"hidden": 128, "layers": 4, "key_heads": 2, "value_heads": 4, "dim": 32, "heads": 4, "kv": 2, "mlp": 384},
    "25m": {"hidden": 384, "layers": 12, "key_heads": 6, "value_heads": 6, "dim": 64, "heads": 6, "kv": 2, "mlp": 1280},
    "100m": {
        "hidden": 768,
        "layers": 12,
        "key_heads": 8,
        "value_heads": 16,
        "dim": 64,
        "heads": 12,
        "kv": 4,
        "mlp": 2560,
    },
}
VOCAB = 1024


def random_config(family: str, size: str = "25m", **changes: Any) -> Any:
    """The configuration of a random model.

    Raises:
        UnsupportedModel: unknown family or size.
    """
    from transformers import Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3NextConfig

    classes = {"qwen3_5": Qwen3_5TextConfig, "qwen3_5_moe": Qwen3_5MoeTextConfig, "qwen3_next": Qwen3NextConfig}
    if family not in classes:
        raise UnsupportedModel(f"random family {family!r} is unknown; use one of {', '.join(classes)}")
    if size not in SIZES:
        raise UnsupportedModel(f"random size {size!r} is unknown; use one of {', '.join(SIZES)}")
    s = SIZES[size]
    common: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": s["hidden"],
        "intermediate_size": s["mlp"],
        "num_hidden_layers": s["layers"],
        "num_attention_heads": s["heads"],
        "num_key_value_heads": s["kv"],
        "head_dim": 64 if s["hidden"] > 128 else 32,
        "linear_num_key_heads": s["key_heads"],
        "linear_num_value_heads": s["value_heads"],
        "linear_key_head_dim": s["dim"],
        "linear_value_head_dim": s["dim"],
        "max_position_embeddings": 262_144,
        "tie_word_embeddings": True,
        "eos_token_id": None,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [3, 3, 2] if s["hidden"] > 128 else [2, 1, 1],
        },
    }
    if family != "qwen3_5":
        common |= {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": s["mlp"] // 4,
            "shared_expert_intermediate_size": s["mlp"] // 4,
        }
    if family == "qwen3_next":
        del common["rope_parameters"]["mrope_section"]
    return classes[family](**(common | changes))


def random_model(spec: str, *, seed: int = 0, **changes: Any) -> Any:
    """A transformers causal LM with random weights.

    Args:
        spec: ``random:FAMILY[:SIZE]``, for example ``random:qwen3_5:25m``.
        seed: Of the weights; the caller's random state is left alone.
        changes: Configuration fields to change.
    """
    from transformers import AutoModelForCausalLM

    _, _, rest = spec.partition(":")
    family, _, size = rest.partition(":")
    config = random_config(family, size or "25m", **changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        init_decays(model)
    return model


@torch.no_grad()
def init_decays(model: Any) -> None:
    """Give every linear layer fla-style decays, in place."""
    for layer in model.model.layers:
        mixer = getattr(layer, "linear_attn", None)
        if mixer is None:
            continue
        heads = mixer.A_log.shape[0]
        mixer.A_log.copy_(torch.empty(heads).uniform_(1, 16).log())
        dt = torch.exp(torch.rand(heads) * (math.log(0.1) - math.log(1e-3)) + math.log(1e-3))
        mixer.dt_bias.copy_(dt + torch.log(-torch.expm1(-dt)))
