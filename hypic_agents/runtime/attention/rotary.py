"""RoPE placement: giving keys their absolute positions."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first ``rotary_dim`` channels by halves (Su et al., arXiv 2104.09864; the NeoX layout).

    Args:
        x: ``[T, heads, head_dim]``.
        cos, sin: ``[T, rotary_dim]``, the two halves equal.
    """
    size = cos.shape[-1]
    half = size // 2
    cos, sin = cos[:, None, :half], sin[:, None, :half]
    first, second = x[..., :half], x[..., half:size]
    parts = [first * cos - second * sin, second * cos + first * sin]
    if size < x.shape[-1]:
        parts.append(x[..., size:])
    return torch.cat(parts, dim=-1)


def rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """:func:`rotate` in place: most channels of a long row need not move."""
    size = cos.shape[-1]
    half = size // 2
    cos, sin = cos[:, None], sin[:, None]
    turned = x[..., :size]
    other = torch.cat((-turned[..., half:], turned[..., :half]), dim=-1)
    turned.mul_(cos).add_(other.mul_(sin))
