"""Transitions in thin factors: as close as asked for, smaller, and the same from the disk."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hypic_agents.runtime.cache.container import Layout, parse
from hypic_agents.runtime.compact import Compaction, compact, transition_error
from hypic_agents.runtime.low_rank import FactoredPayload, factored
from hypic_agents.runtime.payload_codec import SegmentCodec
from hypic_agents.runtime.state import AttentionPayload, LinearPayload, SegmentPayload


def delta_transition(tokens: int, heads: int, size: int, decay: float, seed: int) -> Tensor:
    """``[heads, size, size]``: what a gated delta rule does to a state over random keys."""
    generator = torch.Generator().manual_seed(seed)
    transition = torch.eye(size, dtype=torch.float64).expand(heads, size, size).clone()
    for _ in range(tokens):
        key = torch.nn.functional.normalize(torch.randn(heads, size, generator=generator, dtype=torch.float64), dim=-1)
        read = torch.einsum("hk,hkl->hl", key, transition)
        transition = decay * (transition - 0.7 * key[:, :, None] * read[:, None, :])
    return transition.float()


def payload(transition: Tensor) -> SegmentPayload:
    heads, size = transition.shape[:2]
    linear = LinearPayload(transition, torch.randn(heads, size, 5), torch.randn(3, 6))
    return SegmentPayload((linear, AttentionPayload(torch.randn(5, 2, 3), torch.randn(5, 2, 3), 8), linear), 5)


def from_disk(before: SegmentPayload, codec: SegmentCodec) -> SegmentPayload:
    described, tensors = codec.encode(before)
    return codec.decode(described, parse(bytearray(b"".join(Layout.of({}, tensors).pieces())))[1])


def num_bytes(payload: SegmentPayload, numbers: str) -> int:
    codec = SegmentCodec(numbers=numbers)  # type: ignore[arg-type]
    return sum(len(tensor.data) for tensor in codec.encode(payload)[1].values())


def assert_same(one: SegmentPayload, two: SegmentPayload) -> None:
    assert type(one) is type(two)
    for old, new in zip(one.layers, two.layers, strict=True):
        for x, y in zip(old.tensors(), new.tensors(), strict=True):
            assert torch.equal(x, y)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["float32", "bfloat16", "int8"]),
    st.integers(0, 40),
    st.sampled_from([1.0, 0.99, 0.7]),
    st.sampled_from([0.001, 0.1, 1.0]),
    st.integers(0, 1000),
)
def test_within_the_bound_and_the_same_from_the_disk(
    numbers: str, tokens: int, decay: float, within: float, seed: int
) -> None:
    before = payload(delta_transition(tokens, 3, 16, decay, seed))
    compaction = Compaction(numbers, low_rank_within=within)  # type: ignore[arg-type]
    after = compact(before, compaction)
    codec = SegmentCodec(numbers=compaction.numbers)
    again = from_disk(after, codec)
    assert_same(after, again)
    assert_same(after, from_disk(again, codec))  # from the disk to another place
    plain = Compaction(compaction.numbers)
    # Rounding comes on top of what is left out; it rounds factors no worse than it would round the matrix.
    rounding = transition_error(before, compact(before, plain)) if numbers != "float32" else 1e-5
    assert transition_error(before, after) <= within + 3 * rounding + 0.05 * (numbers == "int8")
    assert num_bytes(after, numbers) <= num_bytes(compact(before, plain), numbers)
    assert after.nbytes >= before.nbytes


@pytest.mark.parametrize("tokens", [1, 3, 7])
def test_short_segments_have_the_rank_of_their_tokens(tokens: int) -> None:
    transition = delta_transition(tokens, 2, 16, 0.9, 0)
    low = factored(transition, 1e-5)
    assert low is not None
    assert low.ranks.tolist() == [tokens] * 2
    torch.testing.assert_close(low.gammas, torch.full((2,), 0.9**tokens))
    torch.testing.assert_close(low.dense(), transition, atol=1e-5, rtol=0)


def test_long_segments_and_odd_heads_keep_their_matrix() -> None:
    assert factored(delta_transition(60, 2, 16, 1.0, 0), 1e-4) is None
    transition = delta_transition(2, 4, 16, 0.9, 0)
    transition[0] = 0
    transition[2, 1, 1] = float("nan")
    low = factored(transition, 1e-4)
    assert low is not None
    assert low.heads.tolist() == [1, 3]
    assert factored(torch.zeros(2, 4, 4), 0.1) is None
    after = compact(payload(transition), Compaction("int8", low_rank_within=1e-4))
    assert isinstance(after, FactoredPayload)
    layer = after.layers[0]
    assert isinstance(layer, LinearPayload) and layer.transition is not None
    assert layer.transition[2].isnan().any()
    assert not layer.transition[0].any()


@pytest.mark.parametrize(("shape", "per_head"), [((3,), 4), ((3, 4), 16)], ids=["scalar", "diagonal"])
@pytest.mark.parametrize("compaction", [Compaction(), Compaction("int8", 0.5, 0.5)], ids=["plain", "compact"])
def test_scalar_and_diagonal_families_store_their_own_shapes(
    shape: tuple[int, ...], per_head: int, compaction: Compaction
) -> None:
    before = SegmentPayload((LinearPayload(torch.rand(shape), torch.randn(3, 4, 5), torch.randn(3, 6)),), 5)
    after = compact(before, compaction)
    _, tensors = SegmentCodec(numbers=compaction.numbers).encode(after)
    assert len(tensors["0.transition"].data) == 3 * per_head
    assert torch.equal(after.layers[0].transition, before.layers[0].transition)  # type: ignore[union-attr, arg-type]
