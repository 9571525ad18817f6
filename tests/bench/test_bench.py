"""Benchmarks on a random model of 1 M parameters: agreement comes before speed, and every figure is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from hypic_agents.bench import compose, warm
from hypic_agents.bench.agreement import relative_error, require_close, untouched_copy
from hypic_agents.bench.carry import carry_error
from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.core import SamplingParams
from hypic_agents.errors import HypicError, InvalidPolicy
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.linear.mixer import LinearMixer
from tests.bench.stub import random_engine

SHAPE = Shape(num_documents=3, document_len=64, system_len=16, question_len=16)
SIZES = compose.Sizes(short=32, long=128, build=64, query=8, inner=2)


def quiet(_stage: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with random_engine() as made:
        yield made


def test_prompts_have_the_promised_lengths_and_new_orders() -> None:
    prompts = Prompts(SHAPE, 100, seed=0)
    first, second = prompts.shuffled(), prompts.shuffled()
    assert len(first) == len(second) == SHAPE.prompt_len == 16 + 3 * 65 + 16
    assert first.token_ids != second.token_ids
    for prompt in (first, second, *prompts.one_each()):
        assert prompt.spans[0].segment.kind == "system"
        for span in prompt.spans:
            assert prompt.token_ids[span.start : span.end] == span.token_ids
    assert {span.segment.source_id for span in first.spans} == {span.segment.source_id for span in second.spans}
    assert first == Prompts(SHAPE, 100, seed=0).shuffled()


def test_warm_prompts(engine: Engine) -> None:
    result = warm.run(engine, repeats=2, seed=0, progress=quiet, shape=SHAPE)
    assert json.loads(json.dumps(result)) == result
    modes = ["exact", "prefix", "hypic", "transformers"]
    assert list(result["ttft_s"]) == list(result["ttft_spread_s"]) == [row["mode"] for row in result["rows"]] == modes
    for mode in modes:
        low, high = result["ttft_spread_s"][mode]
        assert 0 < low <= result["ttft_s"][mode] <= high
    assert result["speedup_vs_full"] == pytest.approx(result["ttft_s"]["exact"] / result["ttft_s"]["hypic"])
    assert result["prompt_tokens"] == SHAPE.prompt_len
    assert result["live_tokens"] == 3 * (8 + 2 + 1) + 16
    assert result["efficiency"] == pytest.approx(result["speedup_vs_full"] / result["ideal_speedup"])
    assert max(result["agreement"].values()) <= 1e-4
    assert result["params"] > 900_000


def test_warm_measures_a_policy_that_reuses() -> None:
    with random_engine(policy="exact") as engine, pytest.raises(InvalidPolicy, match="composes no segments"):
        warm.run(engine, repeats=1, seed=0, progress=quiet, shape=SHAPE)


def test_a_segment_that_was_not_warm_is_refused(engine: Engine) -> None:
    prompt = Prompts(SHAPE, engine.model.vocab_size, seed=9).shuffled()
    completion = engine.generate(prompt, SamplingParams(max_tokens=1), "hypic")
    with pytest.raises(HypicError, match="4 of 4 segments were not warm"):
        warm._require_hits(completion)
    warm._require_hits(engine.generate(prompt, SamplingParams(max_tokens=1), "hypic"))


@torch.inference_mode()
def test_the_untouched_copy_shares_the_weights_and_not_the_mixers(engine: Engine) -> None:
    copy = untouched_copy(engine.model.hf)
    ours = dict(engine.model.hf.named_parameters())
    assert all(ours[name].data_ptr() == p.data_ptr() for name, p in copy.named_parameters())
    assert not any(isinstance(module, LinearMixer) for module in copy.modules())
    ids = torch.tensor([[5, 6, 7]])
    again = warm._Bench(engine, copy, engine.config.default_policy)
    prompt = replace(Prompts(SHAPE, 100, seed=0).shuffled(), token_ids=(5, 6, 7), spans=())
    torch.testing.assert_close(again.transformers(prompt), copy(ids).logits[0, -1])


def test_compose(engine: Engine) -> None:
    result = compose.run(engine, repeats=1, seed=0, progress=quiet, sizes=SIZES)
    assert json.loads(json.dumps(result)) == result
    assert result["compose_ratio"] > 0
    assert result["build_overhead"] > 0
    assert result["linear_layers"] == 3
    assert result["agreement"]["payload_and_running_on"] <= 1e-4
    assert len({tuple(row) for row in result["rows"]}) == 1


def test_a_payload_carries_a_state_as_running_on_does(engine: Engine) -> None:
    for mixer in engine.model.mixers:
        if isinstance(mixer, LinearMixer):
            assert carry_error(mixer, engine.model, 8, 40, 9, seed=0) <= 1e-4
            assert carry_error(mixer, engine.model, 8, 40, 9, seed=0, compose="addition") > 1e-3


def test_a_disagreement_stops_the_report() -> None:
    right = torch.tensor([1.0, 2.0])
    assert relative_error(torch.tensor([1.0, 2.2]), right) == pytest.approx(0.1)
    assert require_close("a and b", right, right, torch.float32) == 0
    with pytest.raises(HypicError, match=r"a and b differ by 0\.1"):
        require_close("a and b", torch.tensor([1.0, 2.2]), right, torch.float32)
    with pytest.raises(HypicError):
        require_close("a and b", torch.tensor([1.0, float("nan")]), right, torch.float32)


def test_config_default_is_the_measured_policy() -> None:
    assert EngineConfig().default_policy.name == "hypic"
