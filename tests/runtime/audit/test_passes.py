"""Passes in slices are the same passes, and a rebuild confirms what is healthy."""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import replace
from typing import TypeVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hypic_agents.runtime.assemble import assembly_row
from hypic_agents.runtime.audit.passes import cut_row, payload_difference, rebuild, score
from hypic_agents.runtime.batch import LiveRun, Row
from hypic_agents.runtime.plan import make_plan
from hypic_agents.runtime.policy import PRESETS, ReusePolicy
from hypic_agents.runtime.state import AttentionPayload, LinearPayload, RowState, SegmentPayload
from tests.runtime.audit.prompts import mixed_prompt
from tests.runtime.models import FAMILIES, engine, hybrid, segment_ids

T = TypeVar("T")


def drain(slices: Generator[None, None, T]) -> tuple[T, int]:
    """What a generator returns, and in how many slices."""
    count = 1
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value, count
        count += 1


@given(st.lists(st.integers(1, 70), min_size=1, max_size=4), st.integers(1, 50), st.integers(1, 9))
def test_a_cut_row_holds_every_token_once_in_pieces_that_fit(lengths: list[int], most: int, wanted: int) -> None:
    elements, at = [], 0
    for i, length in enumerate(lengths):
        size = length + wanted if i == len(lengths) - 1 else length
        elements.append(LiveRun(at, tuple(range(at, at + size))))
        at += size
    pieces = cut_row(Row(tuple(elements), logits_from=wanted), most)
    flat = [t for piece in pieces for run in piece.elements if isinstance(run, LiveRun) for t in run.token_ids]
    assert flat == list(range(at))
    assert [p.logits_from for p in pieces] == [0] * (len(pieces) - 1) + [wanted]
    sizes = [sum(run.length for run in piece.elements) for piece in pieces]
    assert all(size <= max(most, wanted) for size in sizes)
    assert [p.start for p in pieces] == [sum(sizes[:i]) for i in range(len(sizes))]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("policy", ["exact", "hypic"])
@torch.inference_mode()
def test_slices_give_the_logits_of_one_pass(family: str, policy: str) -> None:
    one = engine(family)
    prompt = mixed_prompt(3)
    answer = segment_ids(random.Random(1), 5)
    expected = one.score([prompt], [answer], policy)[0]
    plan = make_plan(prompt, PRESETS[policy])
    entries, _ = drain(rebuild(one.model, plan.builds, one.fingerprint))
    whole, count = drain(score(one.model, plan, prompt.token_ids, answer, entries, one.fingerprint))
    assert count == 1
    assert (whole - expected).abs().max() < 1e-4
    row = assembly_row(plan, prompt.token_ids, entries, one.fingerprint, answer_ids=answer)
    past: RowState | None = None
    logits: Tensor | None = None
    for piece in cut_row(row, 23):
        result = one.model.forward([replace(piece, past=past)])
        past, logits = one.model.row_states(result)[0], result.logits
    assert logits is not None
    assert (logits - expected).abs().max() < 1e-4


@torch.inference_mode()
def test_a_long_prompt_is_scored_in_several_slices() -> None:
    one = engine()
    ids = segment_ids(random.Random(2), 2200)
    plan = make_plan(replace(mixed_prompt(1), token_ids=ids, spans=()), PRESETS["exact"])
    logits, count = drain(score(one.model, plan, ids, (5, 6, 7), {}, one.fingerprint))
    assert count == 3
    expected = hybrid("qwen3_5").forward([Row((LiveRun(0, (*ids, 5, 6)),), logits_from=3)]).logits
    assert (logits - expected).abs().max() < 1e-3


@pytest.mark.parametrize("policy", [PRESETS["hypic"], PRESETS["paper_code"], ReusePolicy(piece_len=16)], ids=str)
@torch.inference_mode()
def test_a_rebuild_confirms_every_healthy_entry(policy: ReusePolicy) -> None:
    """Built together in one pass, rebuilt one by one."""
    one = engine()
    prompt = mixed_prompt(3)
    plan = one.plan(prompt, policy)
    one.warm([prompt], policy)
    entries, slices = drain(rebuild(one.model, plan.builds, one.fingerprint))
    assert len(entries) == one.stats().entries == len({build.key(one.fingerprint) for build in plan.builds})
    assert slices == len(entries) + 1
    for build in plan.builds:
        key = build.key(one.fingerprint)
        stored = one.store.acquire(key, build.token_ids)
        assert stored is not None
        assert isinstance(stored.payload, SegmentPayload) and isinstance(entries[key].payload, SegmentPayload)
        assert payload_difference(stored.payload, entries[key].payload).error < 1e-3
        one.store.release(stored)
    assert one.stats().pinned == 0


def small_payload() -> SegmentPayload:
    make = torch.Generator().manual_seed(1)
    linear = LinearPayload(*(torch.randn(shape, generator=make) for shape in ((2, 4, 4), (2, 4, 4), (3, 8))))
    attention = AttentionPayload(torch.randn(12, 2, 4, generator=make), torch.randn(12, 2, 4, generator=make), 9)
    return SegmentPayload((linear, attention), 12)


def test_each_fault_shows_in_its_layer() -> None:
    good = small_payload()
    linear, attention = good.layers
    assert isinstance(linear, LinearPayload) and isinstance(attention, AttentionPayload)
    assert linear.transition is not None
    nan = linear.end_state.clone()
    nan[0, 0, 0] = math.nan
    faults = [
        (replace(linear, transition=-linear.transition), attention, 2.0, "layer 0"),
        (replace(linear, transition=1.5 * linear.transition), attention, 0.5, "layer 0"),
        (replace(linear, end_state=nan), attention, math.inf, "layer 0"),
        (replace(linear, transition=None), attention, math.inf, "layer 0"),
        (linear, replace(attention, keys=attention.keys.roll(1, 0)), None, "layer 1"),
        (linear, replace(attention, position=10), math.inf, "layer 1"),
        (linear, replace(attention, values=attention.values[:-1]), math.inf, "layer 1"),
        (attention, linear, math.inf, "layer 0"),
    ]
    for first, second, error, where in faults:
        found = payload_difference(SegmentPayload((first, second), 12), good)
        assert found.where == where
        assert found.error > 0.25
        assert error is None or found.error == pytest.approx(error, rel=1e-4)
    assert payload_difference(replace(good, length=11), good).error == math.inf
    assert payload_difference(replace(good, is_checkpoint=True), good).error == math.inf


def test_rounding_of_next_to_nothing_is_no_fault() -> None:
    good = small_payload()
    linear, attention = good.layers
    assert isinstance(linear, LinearPayload)
    nothing = SegmentPayload((replace(linear, transition=torch.full((2, 4, 4), 1e-9)), attention), 12)
    other = SegmentPayload((replace(linear, transition=torch.full((2, 4, 4), -3e-9)), attention), 12)
    assert payload_difference(nothing, other).error < 1e-3
    rounded = SegmentPayload((replace(linear, end_state=linear.end_state.bfloat16()), attention), 12)
    assert payload_difference(rounded, good).error < 0.01
