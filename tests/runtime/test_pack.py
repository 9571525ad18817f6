"""Packing: the short way for decode passes, and long rows cut into blocks."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.runtime import pack as packing
from hypic_agents.runtime.batch import LiveRun, PackedBatch, ReusedRun, Row
from hypic_agents.runtime.models.payloads import built_payloads
from hypic_agents.runtime.models.random_init import random_model
from hypic_agents.runtime.models.registry import wrap
from hypic_agents.runtime.ops.blockwise import BLOCK
from hypic_agents.runtime.pack import cut_row, pack
from hypic_agents.runtime.state import RowState, SegmentPayload
from tests.runtime.models import FAMILIES, engine, hybrid, make_prompt, reference, segment_ids

PAYLOAD = SegmentPayload((), 5)


def index_tensors(batch: PackedBatch) -> dict[str, Tensor]:
    found = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


@pytest.mark.parametrize("num_rows", [1, 2, 5])
@pytest.mark.parametrize("conv_width", [1, 4])
def test_a_decode_pass_is_packed_as_any_other(num_rows: int, conv_width: int) -> None:
    rows = [Row((LiveRun(9 + r, (3 + r,)),), past=RowState(length=9 + r), start=9 + r) for r in range(num_rows)]
    short, general = pack(rows, conv_width), packing._pack(rows, conv_width, "cpu")
    expected = index_tensors(general)
    for name, value in index_tensors(short).items():
        assert value.shape == expected[name].shape, name
        assert torch.equal(value, expected[name]), name
    assert (short.steps, short.row_slices, short.tail_bank) == (general.steps, general.row_slices, general.tail_bank)


def test_index_tensors_of_decoding_serve_a_later_pass_with_gradients() -> None:
    rows = [Row((LiveRun(4, (1,)),), past=RowState(length=4), start=4)]
    with torch.inference_mode():
        first = pack(rows, 4)
    assert pack(rows, 4).history is first.history
    assert not first.history.is_inference()


@given(
    st.lists(st.one_of(st.integers(1, 3 * BLOCK), st.just("reused")), min_size=1, max_size=6).filter(
        lambda parts: parts[-1] != "reused"
    ),
    st.data(),
)
def test_blocks_cover_the_row_in_order(parts: list[int | str], data: st.DataObject) -> None:
    elements: list[LiveRun | ReusedRun] = []
    at = 7
    for part in parts:
        if isinstance(part, int):
            elements.append(LiveRun(at, tuple(range(at, at + part)), capture=data.draw(st.booleans())))
        else:
            elements.append(ReusedRun(at, PAYLOAD.length, PAYLOAD))
        at += elements[-1].length
    row = Row(tuple(elements), past=RowState(length=7), start=7)
    blocks = cut_row(row)
    assert blocks[0].past is row.past
    assert [block.start for block in blocks] == [7, *(block.end for block in blocks[:-1])]
    assert blocks[-1].end == row.end
    sizes = [sum(e.length for e in block.elements if isinstance(e, LiveRun)) for block in blocks]
    assert all(size == BLOCK for size in sizes[:-1])
    assert 0 < sizes[-1] <= BLOCK
    joined = [e for block in blocks for e in block.elements]
    tokens = [token for e in joined if isinstance(e, LiveRun) for token in e.token_ids]
    assert tokens == [token for e in elements if isinstance(e, LiveRun) for token in e.token_ids]
    assert [e for e in joined if isinstance(e, ReusedRun)] == [e for e in elements if isinstance(e, ReusedRun)]
    ends = [e.start + e.length for e in joined if isinstance(e, LiveRun) and e.capture]
    assert ends == [e.start + e.length for e in elements if isinstance(e, LiveRun) and e.capture]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [2 * BLOCK + 2, 2 * BLOCK + 79])
def test_law_1_holds_for_rows_that_are_cut(family: str, length: int) -> None:
    ids = segment_ids(random.Random(length), length)
    with torch.inference_mode():
        expected = reference(family)(torch.tensor([ids])).logits[0, -3:]
        model = hybrid(family)
        result = model.forward([Row((LiveRun(0, ids[:-2]),))])
        assert len(result.batch.blocks) == -(-(length - 2) // BLOCK)
        assert (result.logits[0] - expected[0]).abs().max() < 1e-4
        (state,) = model.row_states(result)
        more = model.forward([Row((LiveRun(length - 2, ids[-2:]),), past=state, start=length - 2, logits_from=2)])
    assert (more.logits - expected[1:]).abs().max() < 1e-4


def test_a_cut_row_leaves_checkpoints_and_continues_from_them() -> None:
    rng = random.Random(5)
    parts = [segment_ids(rng, n) for n in (600, 30, 700, 400)]
    one, sampling = engine(), SamplingParams(max_tokens=8)
    first, other = make_prompt(parts, system=segment_ids(rng, 20)), make_prompt(parts[:2] + parts[3:])
    expected = [one.generate(prompt, sampling, "exact").token_ids for prompt in (first, other)]
    assert [one.generate(prompt, sampling, "prefix").token_ids for prompt in (first, other)] == expected
    again = one.generate(first, sampling, "prefix")
    assert again.token_ids == expected[0]
    assert again.report.reused_tokens > 1700
    longer = Prompt((*first.token_ids, *segment_ids(rng, 1100)), first.spans)
    assert one.generate(longer, sampling, "prefix").token_ids == one.generate(longer, sampling, "exact").token_ids


def test_gradients_flow_through_a_long_row() -> None:
    ids = segment_ids(random.Random(1), 2 * BLOCK)
    model = wrap(random_model("random:qwen3_5:2m"))
    weight = model.hf.get_input_embeddings().weight
    result = model.forward([Row((LiveRun(0, ids),))])
    assert not result.batch.blocks
    result.logits.square().sum().backward()
    assert weight.grad[ids[0]].abs().max() > 0
    with torch.no_grad():
        cut = model.forward([Row((LiveRun(0, ids),))])
    assert len(cut.batch.blocks) == 2
    torch.testing.assert_close(cut.logits, result.logits.detach(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", [0, 40, BLOCK - 1, BLOCK, BLOCK + 200])
def test_a_cut_row_builds_the_payload_that_a_whole_one_builds(
    family: str, head: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = segment_ids(random.Random(head), 3 * BLOCK + 30)
    runs = (LiveRun(0, ids[:head]),) if head else ()
    row = Row((*runs, LiveRun(head, ids[head:], begin_transition=True)), logits_from=0, keep=len(ids) - head)
    with torch.inference_mode():
        cut = hybrid(family).forward([row]).batch
        monkeypatch.setattr("hypic_agents.runtime.pack.is_blocked", lambda *_: False)
        whole = hybrid(family).forward([row]).batch
    assert len(cut.blocks) == 4
    assert not whole.blocks
    for ours, expected in zip(*(built_payloads(batch)[0].layers for batch in (cut, whole)), strict=True):
        for mine, theirs in zip(ours.tensors(), expected.tensors(), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)
