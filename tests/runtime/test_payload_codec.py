"""Payloads come back from bytes as they were, bit for bit."""

from __future__ import annotations

import pytest
import torch

from hypic_agents.runtime.cache.container import Layout, parse
from hypic_agents.runtime.payload_codec import SegmentCodec, from_raw, to_raw
from hypic_agents.runtime.state import AttentionPayload, LinearPayload, SegmentPayload


def payload(dtype: torch.dtype, transition: tuple[int, ...] | None, *, length: int = 3) -> SegmentPayload:
    made = None if transition is None else torch.randn(transition)
    return SegmentPayload(
        (
            LinearPayload(made, torch.randn(2, 4, 5), torch.randn(3, 6).to(dtype)),
            AttentionPayload(torch.randn(length, 2, 4).to(dtype), torch.randn(length, 2, 4).to(dtype), 8),
        ),
        length,
        transition is None,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("transition", [(2, 4, 4), (2, 4), (2,), None], ids=["dense", "diagonal", "scalar", "none"])
@pytest.mark.parametrize("length", [0, 3])
def test_round_trip(dtype: torch.dtype, transition: tuple[int, ...] | None, length: int) -> None:
    before = payload(dtype, transition, length=length)
    described, tensors = SegmentCodec().encode(before)
    raw = bytearray(b"".join(Layout.of({}, tensors).pieces()))
    after = SegmentCodec().decode(described, parse(raw)[1])
    assert (after.length, after.is_checkpoint, after.nbytes) == (before.length, before.is_checkpoint, before.nbytes)
    for old, new in zip(before.layers, after.layers, strict=True):
        assert type(old) is type(new)
        for x, y in zip(old.tensors(), new.tensors(), strict=True):
            assert x.dtype == y.dtype
            assert torch.equal(x, y)
    assert after.layers[1].position == 8  # type: ignore[union-attr]


def test_views_and_special_values_survive() -> None:
    x = torch.tensor([[1.0, float("nan")], [float("inf"), -0.0]]).T
    raw = to_raw(x)
    y = from_raw(type(raw)(raw.dtype, raw.shape, bytearray(raw.data)))
    assert torch.equal(x.contiguous().view(torch.int32), y.view(torch.int32))
