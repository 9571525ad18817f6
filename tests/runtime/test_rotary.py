"""RoPE in place gives what RoPE out of place gives, bit for bit."""

from __future__ import annotations

import pytest
import torch

from hypic_agents.runtime.attention.rotary import rotate, rotate_


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("size", [8, 32])
def test_in_place_equals_out_of_place(dtype: torch.dtype, size: int) -> None:
    gen = torch.Generator().manual_seed(0)
    angles = torch.rand(40, size // 2, generator=gen, dtype=torch.float64).repeat(1, 2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    x = torch.randn(40, 2, 32, generator=gen, dtype=torch.float64).to(dtype)
    expected = rotate(x, cos, sin)
    rotate_(x, cos, sin)
    assert torch.equal(x, expected)
