"""Calibration on real engines: what it counts is what generation gives, and its file is what the engine takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hypic_agents.core import SamplingParams, Segment
from hypic_agents.errors import InvalidInput, InvalidPolicyFile, InvalidPrompts
from hypic_agents.quality.calibrate import report
from hypic_agents.quality.calibrate.candidates import make_candidates
from hypic_agents.quality.calibrate.items import EXACT
from hypic_agents.quality.calibrate.prompts import PromptRecord
from hypic_agents.quality.calibrate.run import Calibration, calibrate
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.policy_file import write_policy_file

SYSTEM = "You answer questions from the documents. Give the value only."
SHEETS = (
    "Hearkin lives in Wogane. Hearkin has badge CG-334. Hearkin has a dog called Welett. The limit is 9 crowns.",
    "- Depus Orbis lives in Kanzinia.\n- Rongo walks a dog named Catane.\n- Walter Ralmavura has badge VL-489.",
)
QUESTIONS = (("Where does Hearkin live?", "Wogane"), ("Which badge does Walter Ralmavura have?", "VL-489"))
CANDIDATES = make_candidates(("hypic:head_seam=4", "zero_state", "hypic:head_seam=200"), ladder=False)


def quiet(_stage: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture(scope="module")
def tiny() -> Iterator[Engine]:
    with Engine.load("tiny", EngineConfig(threads=1)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def blank() -> Iterator[Engine]:
    """Random weights whose answers follow the layers, not the last token: most policies change them."""
    with Engine.load("random:qwen3_5:2m", EngineConfig(threads=1)) as loaded:
        hf = loaded.model.hf
        head = torch.randn(hf.lm_head.weight.shape, generator=torch.Generator().manual_seed(0))
        hf.lm_head.weight = torch.nn.Parameter(head, requires_grad=False)
        hf.get_input_embeddings().weight.mul_(0.05)
        yield loaded


def plain(line: int, question: str, answer: str | None, *, turn: int = 0) -> PromptRecord:
    documents = tuple(Segment(text) for text in (SHEETS if turn % 2 else SHEETS[::-1]))
    return PromptRecord(line, question, (), SYSTEM, (), documents, answer)


def chat(line: int, question: str, answer: str | None) -> PromptRecord:
    body = "\n\n".join([*SHEETS, question])
    messages = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": body})
    return PromptRecord(line, question, messages, None, (), tuple(map(Segment, SHEETS)), answer)


def run(engine: Engine, records: list[PromptRecord], **changes: Any) -> Calibration:
    return calibrate(engine, records, CANDIDATES, **({"max_tokens": 6, "progress": quiet} | changes))


def prompt_of(engine: Engine, record: PromptRecord) -> Any:
    return engine.builder.build(system=record.system, documents=record.documents, question=record.question)


def test_losses_and_wins_are_those_of_real_generation(tiny: Engine) -> None:
    records = [plain(i, *pair, turn=i) for i, pair in enumerate(QUESTIONS * 2, 1)]
    records.append(plain(9, QUESTIONS[0][0], "Kanzinia"))
    result = run(tiny, records)
    assert [trial.policy for trial in result.trials.trials] == list(CANDIDATES)
    right: dict[str, list[bool]] = {}
    for trial in result.trials.trials:
        texts = [tiny.generate(prompt_of(tiny, r), SamplingParams(max_tokens=12), trial.policy).text for r in records]
        right[trial.policy.name] = [text.strip() == r.answer for text, r in zip(texts, records, strict=True)]
        exact = right["exact"]
        assert [one.lost for one in trial.outcomes] == [
            a and not b for a, b in zip(exact, right[trial.policy.name], strict=True)
        ]
        assert [one.won for one in trial.outcomes] == [
            b and not a for a, b in zip(exact, right[trial.policy.name], strict=True)
        ]
    assert any(right["exact"])
    assert not all(right["exact"])
    exact_trial, hypic, *_ = result.trials.trials
    assert all(one.kl < 1e-6 and not one.changed for one in exact_trial.outcomes)
    assert any(one.kl > 1e-6 for one in hypic.outcomes)
    assert [one.live for one in exact_trial.outcomes] == list(result.trials.prompt_lens)
    assert all(one.live < size for one, size in zip(hypic.outcomes, result.trials.prompt_lens, strict=True))
    assert result.choice.chosen.policy.exact, "five prompts cannot show half a point"


def test_without_answers_a_change_is_another_generated_answer(blank: Engine) -> None:
    records = [plain(i, question, None, turn=i) for i, (question, _) in enumerate(QUESTIONS, 1)]
    result = run(blank, records, budget=100, confidence=0.5)
    sampling = SamplingParams(max_tokens=6)
    told = [blank.generate(prompt_of(blank, record), sampling, EXACT).token_ids for record in records]
    changes = 0
    for trial in result.trials.trials[1:]:
        given = [blank.generate(prompt_of(blank, record), sampling, trial.policy).token_ids for record in records]
        assert [one.changed for one in trial.outcomes] == [a != b for a, b in zip(told, given, strict=True)]
        assert [one.lost for one in trial.outcomes] == [one.changed for one in trial.outcomes]
        assert not any(one.won for one in trial.outcomes)
        changes += sum(one.changed for one in trial.outcomes)
    assert 0 < changes < len(records) * len(CANDIDATES[1:])
    assert not any(result.trials.answered)


def test_what_changed_is_listed_with_both_answers(blank: Engine) -> None:
    records = [plain(3, QUESTIONS[0][0], None), chat(8, QUESTIONS[1][0], "VL-489")]
    result = run(blank, records, budget=100, confidence=0.5, splits=2)
    chosen = next(t for t in result.trials.trials if t.policy == result.choice.chosen.policy)
    assert not chosen.policy.exact
    assert [change.line for change in result.changes] == [
        record.line for record, one in zip(records, chosen.outcomes, strict=True) if one.changed
    ]
    for change in result.changes:
        assert change.full_recompute != change.policy
        assert change.effect == "changed"
    written = report.to_dict(result)
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert (written["prompts"], written["with_answers"], written["validation"]["of"]) == (2, 1, 2)
    assert [row["verdict"] for row in written["rows"]].count("chosen") == 1
    assert chosen.policy.name in written["sentence"]


def test_a_chat_and_its_parts_make_the_same_prompt_and_answer(tiny: Engine) -> None:
    question, answer = QUESTIONS[0]
    one, two = (run(tiny, [made(1, question, answer)]).trials for made in (chat, lambda *a: plain(*a, turn=1)))
    assert one.prompt_lens == two.prompt_lens
    assert [trial.outcomes for trial in one.trials] == [trial.outcomes for trial in two.trials]


def test_a_tool_call_is_an_answer_as_the_template_writes_it(tiny: Engine) -> None:
    tools = ({"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}},)
    call = '<tool_call>\n{"name": "find", "arguments": {}}\n</tool_call>'
    record = PromptRecord(1, "Find it.", (), SYSTEM, tools, (Segment(SHEETS[0]),), call)
    outcome = run(tiny, [record]).trials.trials[0].outcomes[0]
    # The call's marks are tokens of their own in the template, and longer as plain text.
    assert outcome.positions < len(tiny.tokenizer.encode_text(call)) + 1


def test_the_engine_takes_the_file_for_its_own_model_only(blank: Engine, tiny: Engine, tmp_path: Path) -> None:
    result = run(blank, [plain(1, QUESTIONS[0][0], None)], budget=100, confidence=0.5)
    content = report.policy_file(result, fingerprint=blank.fingerprint, model=blank.name)
    path = tmp_path / "policy.json"
    write_policy_file(path, content)
    evidence = json.loads(path.read_text(encoding="utf-8"))["evidence"]
    assert {"prompts", "gap_points", "gap_low", "live_share", "made", "package_version", "candidates"} <= set(evidence)
    assert not content.policy.exact

    spec = f"file:{path}"
    prompt = prompt_of(blank, plain(1, QUESTIONS[0][0], None))
    assert EngineConfig(policy=spec).default_policy == content.policy
    assert blank.plan(prompt, spec) == blank.plan(prompt, content.policy)
    with Engine(blank.model, blank.tokenizer, blank.fingerprint, EngineConfig(policy=spec)) as engine:
        assert engine.plan(prompt) == blank.plan(prompt, content.policy)
        assert engine.generate(prompt, SamplingParams(max_tokens=1)).report.policy == content.policy.name
    with pytest.raises(InvalidPolicyFile, match="calibrate for this model"):
        Engine(tiny.model, tiny.tokenizer, tiny.fingerprint, EngineConfig(policy=spec))
    with pytest.raises(InvalidPolicyFile, match="calibrate for this model"):
        tiny.plan(prompt_of(tiny, plain(1, QUESTIONS[0][0], None)), spec)
    with pytest.raises(InvalidPolicyFile, match="no policy file"):
        EngineConfig(policy=f"file:{tmp_path / 'missing.json'}")


def test_prompts_without_segments_leave_full_recompute(blank: Engine) -> None:
    result = run(blank, [PromptRecord(1, "Who is it?")], budget=100, confidence=0.5)
    assert result.choice.chosen.policy.exact
    assert [policy.name for policy in result.idle] == ["hypic:head_seam=4", "zero_state", "hypic:head_seam=200"]
    assert "no segment to reuse" in report.sentence(result)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (
            PromptRecord(7, "Who?", ({"role": "user", "content": "Who?"},), documents=(Segment("absent"),)),
            "line 7: document 0 stands in no message",
        ),
        (PromptRecord(7, "Who?", ({"role": "robot", "content": "Who?"},)), "line 7: message 0 has the unknown role"),
        (
            PromptRecord(
                7,
                "Who?",
                documents=(Segment("a", source_id="x", version="1"), Segment("b", source_id="x", version="2")),
            ),
            "line 7: source 'x' stands in this prompt in the versions",
        ),
    ],
)
def test_a_prompt_that_cannot_be_built_is_named_by_its_line(blank: Engine, record: PromptRecord, says: str) -> None:
    with pytest.raises(InvalidPrompts, match=says):
        run(blank, [PromptRecord(1, "Who?"), record])


def test_a_prompt_that_does_not_fit_the_window_is_named_by_its_line(blank: Engine) -> None:
    with pytest.raises(InvalidPrompts, match=r"line 4: the prompt has .* tokens and 10000000 more were asked for"):
        run(blank, [PromptRecord(4, "Who?")], max_tokens=10_000_000)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"budget": -1}, "gap budget -1"),
        ({"budget": float("nan")}, "gap budget nan"),
        ({"confidence": 1.0}, "confidence 1.0"),
        ({"confidence": 0.0}, "confidence 0.0"),
        ({"splits": -1}, "splits=-1"),
        ({"splits": 2}, "give at least 2"),
    ],
)
def test_bad_requests_are_refused_at_once(blank: Engine, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        run(blank, [PromptRecord(1, "Who?")], **changes)
    with pytest.raises(InvalidInput, match="0 prompts"):
        run(blank, [])
