"""Work that treats every token alone, done in blocks of tokens.

A long pass makes tensors of tens of megabytes in every layer. On a CPU, touching fresh memory of that size costs more
than the arithmetic; what a block of tokens makes fits the caches, and the allocator hands the same memory out again.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# A multiple of every chunk size, so that cutting a run into blocks pads no more chunks.
BLOCK = 512


def is_blocked(num_tokens: int, device: torch.device) -> bool:
    """Whether a pass of so many tokens is worth cutting: long, on a CPU, and no gradient needs what a block made."""
    return num_tokens >= 2 * BLOCK and device.type == "cpu" and not torch.is_grad_enabled()


def over_blocks(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``run(x)`` for an ``x [T, ...]`` whose rows ``run`` treats alone; it gives ``[T, ...]`` in the dtype of ``x``."""
    first = run(x[:BLOCK])
    out = x.new_empty(x.shape[0], *first.shape[1:])
    out[:BLOCK] = first
    for start in range(BLOCK, x.shape[0], BLOCK):
        out[start : start + BLOCK] = run(x[start : start + BLOCK])
    return out
