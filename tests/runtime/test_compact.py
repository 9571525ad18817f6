"""Rounding payloads: bounded, once, and the same from the disk."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.container import Layout, parse
from hypic_agents.runtime.compact import Compaction, compact
from hypic_agents.runtime.payload_codec import SegmentCodec
from hypic_agents.runtime.state import AttentionPayload, LinearPayload, SegmentPayload

ROUNDING = {"bfloat16": 1 / 256, "int8": 1 / 127}


def payload(transition: Tensor | None, end_state: Tensor, *, is_checkpoint: bool = False) -> SegmentPayload:
    attention = AttentionPayload(torch.randn(5, 2, 3), torch.randn(5, 2, 3), 8)
    return SegmentPayload((LinearPayload(transition, end_state, torch.randn(3, 6)), attention), 5, is_checkpoint)


def from_disk(before: SegmentPayload, codec: SegmentCodec) -> SegmentPayload:
    described, tensors = codec.encode(before)
    return codec.decode(described, parse(bytearray(b"".join(Layout.of({}, tensors).pieces())))[1])


def assert_same(one: SegmentPayload, two: SegmentPayload) -> None:
    for old, new in zip(one.layers, two.layers, strict=True):
        for x, y in zip(old.tensors(), new.tensors(), strict=True):
            assert x.dtype == y.dtype
            assert torch.equal(x, y)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["bfloat16", "int8"]),
    st.floats(-30, 30),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.5, 3.0]),
)
def test_rounding_is_bounded_and_survives_the_disk(numbers: str, scale: float, seed: int, drop: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    transition = torch.randn(3, 4, 4, generator=generator) * 2.0 ** torch.randint(-9, 3, (3, 1, 1), generator=generator)
    end_state = torch.randn(3, 4, 5, generator=generator) * 2.0**scale
    end_state[0, 0] = 0
    before = payload(transition, end_state)
    compaction = Compaction(numbers, drop)  # type: ignore[arg-type]
    after = compact(before, compaction)
    assert_same(after, from_disk(after, SegmentCodec(numbers=compaction.numbers)))
    assert_same(after, compact(after, Compaction(compaction.numbers)))
    assert after.nbytes == before.nbytes

    old, new = before.layers[0], after.layers[0]
    assert isinstance(old, LinearPayload) and isinstance(new, LinearPayload)
    assert old.transition is not None and new.transition is not None
    kept = torch.linalg.matrix_norm(transition) >= drop
    assert not new.transition[~kept].any()
    lost = torch.linalg.matrix_norm(old.transition - new.transition, 2)[~kept]
    assert (lost <= drop).all()
    for x, y in ((old.end_state, new.end_state), (old.transition[kept], new.transition[kept])):
        bound = x.abs() if numbers == "bfloat16" else x.abs().amax(-1, keepdim=True)
        assert ((x - y).abs() <= ROUNDING[numbers] * bound + 1e-37).all()
    assert torch.equal(old.conv_tail, new.conv_tail)
    assert before.layers[1] is after.layers[1]


@pytest.mark.parametrize("numbers", ["bfloat16", "int8"])
def test_checkpoints_and_small_transitions_stay_exact(numbers: str) -> None:
    compaction = Compaction(numbers, 10.0)  # type: ignore[arg-type]
    checkpoint = payload(None, torch.randn(3, 4, 5), is_checkpoint=True)
    assert compact(checkpoint, compaction) is checkpoint
    assert_same(checkpoint, from_disk(checkpoint, SegmentCodec(numbers=compaction.numbers)))
    scalar = payload(torch.rand(3), torch.randn(3, 4, 5))
    found = compact(scalar, compaction).layers[0]
    assert isinstance(found, LinearPayload)
    assert found.transition is scalar.layers[0].transition or torch.equal(found.transition, scalar.layers[0].transition)  # type: ignore[union-attr, arg-type]


def test_numbers_that_are_none_are_not_dressed_up() -> None:
    broken = payload(torch.full((1, 2, 2), float("nan")), torch.full((1, 2, 2), float("inf")))
    after = compact(broken, Compaction("int8"))
    assert torch.equal(after.layers[0].end_state, broken.layers[0].end_state)  # type: ignore[union-attr]
    assert after.layers[0].transition.isnan().all()  # type: ignore[union-attr]


def test_dropped_heads_take_no_bytes() -> None:
    transition = torch.eye(4).expand(3, 4, 4).clone()
    transition[1] = 0
    codec = SegmentCodec()
    _, tensors = codec.encode(payload(transition, torch.randn(3, 4, 5)))
    assert tensors["0.transition"].shape == (2, 4, 4)
    _, tensors = codec.encode(payload(torch.zeros(3, 4, 4), torch.randn(3, 4, 5)))
    assert tensors["0.transition"].shape == (0, 4, 4)
    assert_same(
        payload_of_zeros := payload(torch.zeros(3, 4, 4), torch.zeros(3, 4, 5)), from_disk(payload_of_zeros, codec)
    )


@pytest.mark.parametrize(
    "bad", [{"numbers": "int4"}, {"drop_below": -1.0}, {"drop_below": float("nan")}, {"low_rank_within": -1.0}]
)
def test_settings_are_checked(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        Compaction(**bad)  # type: ignore[arg-type]
