from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from hypic_agents.bench.paper.states import (
    distance,
    distance_of_all,
    linear_states,
    prefill,
    require_exact_when_live,
    without_attention,
)
from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.core import SamplingParams
from hypic_agents.errors import ContextOverflow, HypicError
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.policy import ReusePolicy
from tests.bench.stub import random_engine

SHAPE = Shape(num_documents=2, document_len=48, system_len=16, question_len=8)
ALONE = ReusePolicy(head_seam=3, tail_seam=0, condition_on_system=False)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with random_engine() as made:
        yield made


@pytest.fixture
def prompts(engine: Engine) -> Prompts:
    return Prompts(SHAPE, engine.model.vocab_size, seed=3)


@pytest.mark.parametrize("degrees", [0.0, 1e-6, 0.003, 5.11, 90.0, 180.0])
def test_small_angles_keep_their_digits(degrees: float) -> None:
    angle = math.radians(degrees)
    a = torch.tensor([2.0, 0.0], dtype=torch.float64)
    b = 3 * torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    assert distance(a, b).degrees == pytest.approx(degrees, rel=1e-6, abs=1e-12)


def test_a_known_distance() -> None:
    a, b = torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 0.0]])
    assert distance(a, b).relative == pytest.approx(4 / 3)
    assert distance_of_all([a, a], [b, a]).relative == pytest.approx(4 / math.sqrt(9 + 25))
    assert distance(b, b).relative == distance(b, b).degrees == 0


def test_the_state_is_that_of_the_whole_prompt(engine: Engine, prompts: Prompts) -> None:
    prompt = prompts.shuffled()
    state = prefill(engine, prompt, "exact")
    assert state.length == len(prompt)
    assert len(linear_states(state)) == 3
    shorter = prefill(engine, replace(prompt, token_ids=prompt.token_ids[:-1]), "exact")
    assert distance(linear_states(shorter)[0], linear_states(state)[0]).relative > 1e-3


def test_a_model_that_ends_at_once_still_leaves_its_state(engine: Engine, prompts: Prompts) -> None:
    prompt = prompts.shuffled()
    token = engine.generate(prompt, SamplingParams(max_tokens=1), "exact").token_ids[0]
    engine.tokenizer.eos_token_ids = frozenset({token})  # type: ignore[misc]
    try:
        assert prefill(engine, prompt, "exact").length == len(prompt)
    finally:
        engine.tokenizer.eos_token_ids = frozenset()  # type: ignore[misc]


def test_bad_prompts_raise_what_any_request_raises(engine: Engine, prompts: Prompts) -> None:
    with pytest.raises(ContextOverflow):
        prefill(engine, replace(prompts.shuffled(), token_ids=(1,) * (engine.model.window + 1), spans=()), "exact")


def test_everything_live_is_exact_and_a_wrong_state_is_refused(
    engine: Engine, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = prompts.shuffled()
    assert require_exact_when_live(engine, prompt, ALONE) < 1e-5
    monkeypatch.setattr("hypic_agents.bench.paper.states.UNLIMITED", 3)
    with pytest.raises(HypicError, match="no speed is reported: states behind an unlimited seam"):
        require_exact_when_live(engine, prompt, ALONE.with_(compose="addition"))


def test_without_attention_nothing_stays_behind(engine: Engine, prompts: Prompts) -> None:
    prompt = prompts.shuffled()
    tokens = SamplingParams(max_tokens=1)
    before = engine.score([prompt], [(0,)], "exact")[0]
    entries = engine.stats().entries
    with without_attention(engine) as muted:
        inside = muted.score([prompt], [(0,)], "exact")[0]
        muted.generate(prompt, tokens, ALONE)
        assert muted.stats().entries == 3
    assert not torch.allclose(inside, before)
    assert engine.stats().entries == entries
    torch.testing.assert_close(engine.score([prompt], [(0,)], "exact")[0], before)
