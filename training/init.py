"""Initialisation. Decisive at this size: with transformers' 0.02 the model stays at chance."""

from __future__ import annotations

import math

import torch
from torch import nn

from training.config import TrainConfig


def decay_parameters(memories: tuple[float, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """``(A_log, dt_bias)``, each [H], such that a head forgets by 1/e in ``memories[h]`` tokens at a zero input.

    The log decay is ``-exp(A_log) * softplus(a + dt_bias)``. As in fla, the step size stays under 0.1, so that the
    input scales it exponentially: also a slow head can learn to forget at once.
    """
    rate = torch.tensor([1.0 / memory for memory in memories], dtype=torch.float64)
    scale = torch.where(rate > 0.02, 8.0, 1.0).to(torch.float64)
    dt = rate / scale
    dt_bias = torch.log(torch.expm1(dt))
    return scale.log().float(), dt_bias.float()


@torch.no_grad()
def initialise(model: nn.Module, config: TrainConfig, seed: int) -> None:
    """Overwrite every parameter of ``model`` in place, the same for the same ``seed``."""
    generator = torch.Generator().manual_seed(seed)
    a_log, dt_bias = decay_parameters(config.memories)
    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):
            parameter.copy_(a_log)
        elif name.endswith("dt_bias"):
            parameter.copy_(dt_bias)
        elif "conv1d" in name:
            parameter.uniform_(-config.conv_bound, config.conv_bound, generator=generator)
        elif "embed_tokens" in name:
            parameter.normal_(0.0, config.embedding_std, generator=generator)
            parameter[:, 0] = config.constant_channel
        elif "in_proj_a" in name:
            parameter.normal_(0.0, config.decay_projection_std, generator=generator)
        elif "in_proj_b" in name:
            parameter.normal_(0.0, config.weight_std, generator=generator)
            parameter[:, 0] = torch.tensor(config.write_gates)
        elif parameter.ndim == 2:
            parameter.normal_(0.0, config.weight_std, generator=generator)
        elif name.endswith("linear_attn.norm.weight"):
            parameter.fill_(1.0)
        elif name.endswith("norm.weight"):
            parameter.zero_()  # these norms scale by 1 + weight
        else:
            raise ValueError(f"no initialisation for {name}")


def memory_tokens(a_log: torch.Tensor, dt_bias: torch.Tensor) -> torch.Tensor:
    """Memory of each head in tokens at a zero input, [H]."""
    rate = a_log.exp() * nn.functional.softplus(dt_bias)
    return 1.0 / rate.clamp_min(math.ulp(1.0))
