"""Tensors of checkpoints: what they hold is their own, and a row continues from them as from itself."""

from __future__ import annotations

import random

import pytest
import torch

from hypic_agents.runtime.batch import LiveRun, Row
from hypic_agents.runtime.models.payloads import captured_states
from hypic_agents.runtime.prefix_pages import draw_pages, page_bytes, resume, take_snapshot
from hypic_agents.runtime.state import KVBuffer
from tests.runtime.models import hybrid, segment_ids

LAYOUTS = ["", "llfl", "flll", "ll"]


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.inference_mode()
def test_a_row_goes_on_from_pages_as_from_its_own_state(layout: str) -> None:
    model = hybrid("qwen3_5", layout)
    ids = segment_ids(random.Random(1), 150)
    whole = model.forward([Row((LiveRun(0, ids),))]).logits
    state = model.row_states(model.forward([Row((LiveRun(0, ids[:90]),))]))[0]
    snapshot = take_snapshot(state.layers)
    pages = draw_pages(state, 0, 90)
    assert pages.nbytes == 90 * page_bytes(state)
    first, rest = pages.split(33)
    assert first.nbytes + rest.nbytes == pages.nbytes
    for _ in range(2):  # what one row does with them changes nothing for the next
        past = resume(snapshot, [first, rest], 90, 100)
        assert past.length == 90
        got = model.forward([Row((LiveRun(90, ids[90:]),), past=past, start=90)]).logits
        assert (got - whole).abs().max() < 1e-4


@torch.inference_mode()
def test_pages_keep_no_larger_buffer_alive() -> None:
    model = hybrid("qwen3_5", "lf")
    state = model.row_states(model.forward([Row((LiveRun(0, segment_ids(random.Random(2), 60)),))]))[0]
    pages = draw_pages(state, 10, 20)
    tensors = [tensor for part in (pages, *pages.split(4)) for pair in part.layers for tensor in pair]
    for tensor in tensors:
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    buffer = next(layer for layer in state.layers if isinstance(layer, KVBuffer))
    buffer.keys.zero_()
    assert pages.layers[0][0].abs().sum() > 0


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.inference_mode()
def test_states_are_captured_in_a_pass_of_several_rows(layout: str) -> None:
    model = hybrid("qwen3_5", layout)
    rng = random.Random(3)
    rows = [segment_ids(rng, n) for n in (40, 100, 70)]
    cuts = {0: 37, 2: 16}
    packed = [
        Row((LiveRun(0, ids[: cuts[r]], capture=True), LiveRun(cuts[r], ids[cuts[r] :])))
        if r in cuts
        else Row((LiveRun(0, ids),))
        for r, ids in enumerate(rows)
    ]
    captured = captured_states(model.forward(packed).batch)
    assert set(captured) == set(cuts)
    for r, cut in cuts.items():
        alone = model.row_states(model.forward([Row((LiveRun(0, rows[r][:cut]),))]))[0]
        for layer, expected in zip(captured[r], alone.layers, strict=True):
            if isinstance(expected, KVBuffer):
                assert layer is None
                continue
            assert layer is not None
            assert (layer.recurrent_state - expected.recurrent_state).abs().max() < 1e-4
            assert (layer.conv_tail - expected.conv_tail).abs().max() < 1e-4
