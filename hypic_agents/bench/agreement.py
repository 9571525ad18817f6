"""Agreement before speed: a figure of two things that compute something else would be worthless."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hypic_agents.errors import HypicError

# Shares of the largest value by which two ways to compute the same thing may differ.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
_ROUGH = 0.05


def untouched_copy(hf: Any) -> Any:
    """The transformers model as it was before its mixers were replaced. It shares the weights."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        copy = AutoModelForCausalLM.from_config(hf.config, dtype=hf.dtype)
    copy.load_state_dict(hf.state_dict(), assign=True)
    # Buffers outside the state dict (RoPE frequencies) were made on no device; take the ones in use.
    for name, buffer in hf.named_buffers():
        owner, _, leaf = name.rpartition(".")
        copy.get_submodule(owner).register_buffer(leaf, buffer, persistent=False)
    copy.tie_weights()
    return copy.eval().requires_grad_(False)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest expected value."""
    return ((found.double() - expected.double()).abs().max() / expected.double().abs().max().clamp_min(1e-12)).item()


def require_close(what: str, found: Tensor, expected: Tensor, dtype: torch.dtype) -> float:
    """The relative error.

    Raises:
        HypicError: it is larger than rounding explains, so nothing may be reported.
    """
    error = relative_error(found, expected)
    limit = TOLERANCE.get(dtype, _ROUGH)
    if not error <= limit:
        raise HypicError(f"no speed is reported: {what} differ by {error:.2g} of the largest value, limit {limit:.2g}")
    return error
