"""The load-time check: our pass against the untouched transformers forward, on a few tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hypic_agents.errors import ModelMismatch
from hypic_agents.runtime.batch import LiveRun, Row
from hypic_agents.runtime.models.hybrid import HybridModel

PROBE = (1, 2)


@torch.inference_mode()
def probe_logits(hf: Any) -> Tensor:
    """Logits ``[2, vocab]`` of two tokens by transformers' own forward, before any mixer is replaced."""
    ids = torch.tensor([PROBE], device=hf.device)
    return hf(input_ids=ids, use_cache=False).logits[0].float()  # type: ignore[no-any-return]


@torch.inference_mode()
def require_agreement(model: HybridModel, expected: Tensor) -> None:
    """Compare our logits with ``expected``.

    Raises:
        ModelMismatch: they differ by more than rounding of the model's dtype explains.
    """
    ours = model.forward([Row((LiveRun(0, PROBE),), logits_from=len(PROBE))]).logits.float()
    scale = expected.abs().max().clamp_min(1.0)
    error = ((ours - expected).abs().max() / scale).item()
    limit = 1e-4 if model.dtype == torch.float32 else 0.05
    if not error <= limit:
        raise ModelMismatch(
            f"the adapter disagrees with transformers by {error:.2g} of the largest logit (limit {limit:.2g}); "
            "the installed transformers version may have changed this architecture"
        )
