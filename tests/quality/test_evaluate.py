"""The evaluation on a random model: what counts as right, what is compared, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hypic_agents.completion import Completion
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import HypicError, InvalidInput, InvalidPolicy, InvalidPolicyFile
from hypic_agents.quality.checks import cold_warm_differences, generation_agreement
from hypic_agents.quality.evaluate import run_eval
from hypic_agents.quality.picture import draw_sweep
from hypic_agents.quality.policies import EVALUATED, sweep_policies
from hypic_agents.quality.questions import Item, make_items
from hypic_agents.quality.scoring import judge, score
from hypic_agents.quality.worlds import TASKS
from hypic_agents.runtime.config import EngineConfig, parse_policy
from hypic_agents.runtime.engine import GREEDY, Engine
from hypic_agents.runtime.policy_file import PolicyFile, write_policy_file

EXACT, HYPIC = parse_policy("exact"), parse_policy("hypic")


def quiet(_stage: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("random:qwen3_5:2m", EngineConfig(threads=1)) as loaded:
        yield loaded


def likely(engine: Engine, item: Item, policy: Any, length: int = 4) -> Item:
    """The item with an answer that the model really gives."""
    answer = engine.generate(item.prompt, SamplingParams(max_tokens=length), policy).token_ids
    return replace(item, answer_ids=answer)


@pytest.mark.parametrize("task", TASKS)
def test_questions_depend_on_the_seed_alone_and_share_documents(engine: Engine, task: str) -> None:
    items = make_items(engine, task, 4, seed=1)
    assert items == make_items(engine, task, 4, seed=1)
    assert items != make_items(engine, task, 4, seed=2)
    assert {item.task for item in items} == {task}
    assert len({item.prompt.token_ids for item in items}) == 4
    texts = [{span.segment.text for span in item.prompt.spans} for item in items]
    assert any(len(a & b) >= 8 for a, b in pairwise(texts))


def test_more_questions_begin_with_the_same_ones(engine: Engine) -> None:
    assert make_items(engine, "single", 9, seed=0)[:3] == make_items(engine, "single", 3, seed=0)


@pytest.mark.parametrize("task", ["single", "two_hop", "tool"])
def test_answers_are_what_the_chat_template_writes(engine: Engine, task: str) -> None:
    for item in make_items(engine, task, 10, seed=0):
        assert item.answer_ids[-1] in engine.tokenizer.eos_token_ids
        assert not engine.tokenizer.eos_token_ids & set(item.answer_ids[:-1])
        text = engine.tokenizer.decode(item.answer_ids)
        if text.startswith("<tool_call>"):
            # The call's marks are tokens of their own, which content never holds.
            assert item.answer_ids[0] not in engine.tokenizer.encode_text("<tool_call>")


def test_right_is_exactly_what_greedy_decoding_gives(engine: Engine) -> None:
    for policy in (EXACT, HYPIC):
        item = likely(engine, make_items(engine, "single", 1, seed=0)[0], policy)
        logits = score(engine, [item], policy)[0]
        verdict = judge(item, logits, logits, frozenset())
        assert verdict.right
        assert verdict.tokens == item.answer_ids
        assert verdict.agreements == len(item.answer_ids)
        assert verdict.kl == pytest.approx(0, abs=1e-6)
        other = (item.answer_ids[-1] + 1) % engine.model.vocab_size
        wrong = replace(item, answer_ids=(*item.answer_ids[:-1], other))
        assert not judge(wrong, logits, logits, frozenset()).right
        assert judge(wrong, logits, logits, frozenset({other, item.answer_ids[-1]})).right


def test_kl_and_agreement_compare_with_full_recompute() -> None:
    item = Item("single", Prompt((0,)), (0, 1))
    exact = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    other = torch.tensor([[0.5, 0.5], [0.6, 0.4]]).log()
    verdict = judge(item, other, exact, frozenset())
    assert (verdict.right, verdict.agreements) == (False, 1)
    expected = (exact.exp() * (exact - other)).sum().item()
    assert verdict.kl == pytest.approx(expected, rel=1e-5)


def test_scores_do_not_depend_on_the_pass(engine: Engine) -> None:
    items = make_items(engine, "single", 5, seed=0)
    together = score(engine, items, HYPIC)
    alone = score(engine, items, HYPIC, most_prompts=1)
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


class Deaf(Engine):
    """Generates something else than it scores."""

    def generate_batch(
        self, prompts: Sequence[Prompt], sampling: SamplingParams = GREEDY, policy: Any = None
    ) -> list[Completion]:
        made = super().generate_batch(prompts, sampling, policy)
        logits = self.score(prompts, [(0,)] * len(prompts), policy)
        return [replace(c, token_ids=(int(x[0].argmin()),)) for c, x in zip(made, logits, strict=True)]


class Moody(Engine):
    """Scores otherwise every other time."""

    calls = 0

    def score(self, prompts: Sequence[Prompt], answers: Sequence[Sequence[int]], policy: Any = None) -> list[Tensor]:
        self.calls += 1
        logits = super().score(prompts, answers, policy)
        return [-x for x in logits] if self.calls % 2 else logits


def as_kind(engine: Engine, kind: type[Engine]) -> Engine:
    return kind(engine.model, engine.tokenizer, engine.fingerprint, engine.config)


def test_generation_agrees_with_scoring(engine: Engine) -> None:
    items = [likely(engine, item, EXACT) for item in make_items(engine, "single", 3, seed=0)]
    assert generation_agreement(engine, items, [EXACT]) == 1.0


def test_a_contradiction_of_generation_and_scoring_is_refused(engine: Engine) -> None:
    with pytest.raises(HypicError, match="generation contradicts scoring in 2 of 2"):
        generation_agreement(as_kind(engine, Deaf), make_items(engine, "single", 2, seed=0), [EXACT])


def test_cold_and_warm_are_compared(engine: Engine) -> None:
    items = make_items(engine, "two_hop", 4, seed=0)
    assert cold_warm_differences(engine, items, HYPIC) == 0
    assert cold_warm_differences(as_kind(engine, Moody), items, HYPIC) == 4
    engine.store.check_integrity()


def test_the_result_has_every_figure(engine: Engine) -> None:
    stages: list[tuple[str, int, int]] = []
    result = run_eval(
        engine,
        questions_per_task=2,
        presets=("hypic", "zero_state"),
        tasks=("single", "running"),
        seed=3,
        progress=lambda *stage: stages.append(stage),
    )
    assert json.loads(json.dumps(result)) == result
    assert list(result["tasks"]) == ["single", "running"]
    for by_policy in (*result["tasks"].values(), result["mean"]):
        assert list(by_policy) == ["exact", "hypic", "zero_state"]
        for figures in by_policy.values():
            assert {"score", "gap_points", "gap_ci95", "top1_agreement", "kl"} <= set(figures)
            assert 0 <= figures["score"] <= 1
            assert figures["gap_ci95"][0] <= figures["gap_points"] <= figures["gap_ci95"][1]
    exact = result["tasks"]["single"]["exact"]
    assert (exact["gap_points"], exact["top1_agreement"], exact["kl"]) == (0, 1, pytest.approx(0, abs=1e-6))
    assert result["mean"]["hypic"]["score"] == result["tasks"]["single"]["hypic"]["score"], "count is an extra"
    assert result["changed"]["exact"] == {"to_wrong": 0, "to_right": 0}
    assert result["generation_agrees"] == 1.0
    assert result["cold_equals_warm"] is True
    assert 0.5 < result["reused_share"] < 1
    assert result["questions"] == 4
    assert [row["policy"] for row in result["rows"]] == ["exact", "hypic", "zero_state"]
    assert len({tuple(row) for row in result["rows"]}) == 1, "rows of a table share their columns"
    assert stages[-1] == ("scoring", 4, 4)


def test_a_calibrated_policy_goes_by_its_file(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    write_policy_file(path, PolicyFile(parse_policy("addition").with_(name="hypic"), engine.fingerprint))
    spec = f"file:{path}"
    result = run_eval(
        engine, questions_per_task=2, presets=("hypic", "addition", spec), tasks=("single",), progress=quiet
    )
    assert [row["policy"] for row in result["rows"]] == ["exact", "hypic", "addition", spec]
    assert result["tasks"]["single"][spec] == result["tasks"]["single"]["addition"]
    assert result["tasks"]["single"][spec]["kl"] != result["tasks"]["single"]["hypic"]["kl"]


def test_a_policy_of_another_model_is_refused(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    write_policy_file(path, PolicyFile(HYPIC, "another"))
    with pytest.raises(InvalidPolicyFile, match="calibrate for this model"):
        run_eval(engine, questions_per_task=1, presets=(f"file:{path}",), progress=quiet)


def test_a_sweep_gives_a_curve_and_a_picture(engine: Engine, tmp_path: Path) -> None:
    result = run_eval(engine, questions_per_task=1, tasks=("single",), seams=(0, 8), progress=quiet)
    assert [(row["built"], row["seam"]) for row in result["curve"]] == [
        ("alone", 0),
        ("alone", 8),
        ("behind the system prompt", 0),
        ("behind the system prompt", 8),
    ]
    assert result["curve"][0]["live_share"] < result["curve"][1]["live_share"]
    draw_sweep(result, tmp_path / "sweep.png", title="random")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match="cannot save"):
        draw_sweep(result, tmp_path / "missing" / "sweep.png", title="random")


def test_evaluated_policies_exist() -> None:
    for spec in (*EVALUATED, *sweep_policies()):
        parse_policy(spec)
    assert "prefix" not in EVALUATED


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"tasks": ("singel",)}, InvalidInput),
        ({"presets": ("hypik",)}, InvalidPolicy),
        ({"questions_per_task": 0}, InvalidInput),
    ],
)
def test_bad_input_is_refused_at_once(engine: Engine, changes: dict[str, Any], error: type[Exception]) -> None:
    arguments: dict[str, Any] = {"questions_per_task": 1, "progress": quiet}
    with pytest.raises(error):
        run_eval(engine, **(arguments | changes))
