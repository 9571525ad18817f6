"""The benchmark of cold prompts on real worker processes, small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hypic_agents.bench import cold
from hypic_agents.bench.cold_simulation_measured import Measured
from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.completion import ColdBuilds
from hypic_agents.errors import HypicError, InvalidPolicy
from hypic_agents.runtime.engine import Engine
from tests.bench.stub import random_engine

SHAPE = Shape(num_documents=3, document_len=48, system_len=16, question_len=16)


def quiet(_stage: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with random_engine(prefix_bytes=0) as made:
        yield made


def test_cold_prompts(engine: Engine) -> None:
    result = cold.run(engine, repeats=2, seed=0, progress=quiet, shape=SHAPE, hop_s=0.0)
    assert json.loads(json.dumps(result)) == result
    forms = ["workers", "one_worker", "local", "full_one_thread", "full_all_threads"]
    assert list(result["ttft_s"]) == list(result["ttft_spread_s"]) == [row["form"] for row in result["rows"]] == forms
    ours = result["seconds_each"]["workers"]
    for name in ("one_worker", "full_one_thread", "full_all_threads"):
        ratios = [other / own for other, own in zip(result["seconds_each"][name], ours, strict=True)]
        assert result["speedup_spread"][f"speedup_vs_{name}"] == [min(ratios), max(ratios)]
        assert result[f"speedup_vs_{name}"] == pytest.approx(sum(ratios) / 2)
    assert (result["workers"], result["segments"], result["segment_tokens"]) == (2, 3, 48)
    assert (result["built_by_workers"], result["built_here"]) == (4, 0)
    assert result["prompt_tokens"] == SHAPE.prompt_len
    measured = Measured.of(result)
    assert len(measured.tokens) == 3
    assert set(measured.makespan_s) == {1, 2}
    assert measured.live == result["live_tokens"]
    seconds = result["simulation"]
    whole = seconds["prefix_s"] + seconds["makespan_s"]["1"] + seconds["answer_s"]
    assert seconds["prefix_s"] > 0
    assert whole == pytest.approx(result["ttft_s"]["one_worker"])


def test_a_policy_that_builds_nothing_is_refused() -> None:
    with random_engine(policy="exact") as exact, pytest.raises(InvalidPolicy, match="builds no segments"):
        cold.run(exact, repeats=1, seed=0, progress=quiet, shape=SHAPE)


def test_forms_that_answer_differently_are_not_reported(engine: Engine) -> None:
    prompt = Prompts(SHAPE, engine.model.vocab_size, seed=1).shuffled()
    forms: dict[str, Any] = {
        name: SimpleNamespace(answer=lambda _prompt, _sampling, ids=ids: SimpleNamespace(token_ids=ids))
        for name, ids in {
            "workers": (1, 2),
            "one_worker": (1, 2),
            "local": (1, 2),
            "full_one_thread": (9,),
            "full_all_threads": (9,),
        }.items()
    }
    cold._require_agreement(forms, prompt, quiet)
    for name in ("workers", "full_all_threads"):
        wrong = forms | {name: SimpleNamespace(answer=lambda *_: SimpleNamespace(token_ids=(5,)))}
        with pytest.raises(HypicError, match="answer differently"):
            cold._require_agreement(wrong, prompt, quiet)


def test_what_was_warm_or_failed_is_not_reported(engine: Engine) -> None:
    prompt = Prompts(SHAPE, engine.model.vocab_size, seed=2).shuffled()
    first, second = (engine.generate(prompt, cold._FIRST_TOKEN, "hypic") for _ in range(2))
    cold._require_clean({"workers": first, "full_one_thread": second})
    with pytest.raises(HypicError, match="were not cold"):
        cold._require_clean({"workers": second})
    failed = replace(first.report, builds=ColdBuilds(1, 3, 1, ("worker 0 was lost",)))
    with pytest.raises(HypicError, match="worker 0 was lost"):
        cold._require_clean({"workers": replace(first, report=failed)})
