from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from native_models import examples_of, make_rows, write_rows

from hypic_agents.errors import InvalidInput
from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from hypic_agents.quality.calibrate.prompts import read_prompts
from hypic_agents.runtime.config import ReusePolicy
from hypic_agents.runtime.models.registry import TINY
from hypic_agents.runtime.plan import make_plan
from training.native.examples import encode_rows
from training.native.rows import read_rows
from training.native.sample import write_sample
from training.native.targets import ANSWER, DOCUMENT, FOLLOW, Wanted, build_targets, in_passes, row_targets

TOKENIZER = ChatTokenizer.from_pretrained(str(TINY))
CALL = '<tool_call>{"name": "find_crew", "arguments": {"day": 4}}</tool_call>'
TOOL = {"type": "function", "function": {"name": "find_crew", "description": "Find.", "parameters": {}}}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: a row is a JSON object, not list"),
        ('{"prompt": "a"}', "line 2: give either 'messages' or 'question'; the keys are prompt"),
        ('{"messages": [], "question": "a"}', "line 2: give either"),
        ('{"question": " "}', "line 2: 'question' must be a text"),
        ('{"question": "a", "system": 3}', "line 2: 'system' must be a text, not int"),
        ('{"question": "a", "documents": "b"}', "line 2: 'documents' must be a list, not str"),
        ('{"question": "a", "documents": ["b", 4]}', "line 2: 'documents' 2 cannot be a int"),
        ('{"question": "a", "documents": ["b", {"text": ""}]}', "line 2, documents 2: 'text'"),
        ('{"question": "a", "document": "b"}', "line 2: 'document' is not known here; the keys are system"),
        ('{"messages": [], "system": "b"}', "line 2: 'system' is not known here; the keys are messages"),
        ('{"question": "a", "documents": [{"text": "b", "id": 3}]}', "line 2, documents 1: 'id' is not known"),
        ('{"question": "a", "segments": [{"text": "b", "kind": "book"}]}', "line 2, segments 1: unknown kind 'book'"),
        ('{"question": "a", "answer": ""}', "line 2: 'answer' must be a text"),
        ('{"question": "a", "answer": {"role": "user", "content": "b"}}', "line 2: an answer is"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "line 2: no message stands before the answer"),
        ('{"messages": [{"role": "robot", "content": "a"}], "answer": "b"}', "line 2: message 0 has the unknown role"),
        ('{"question": "a", "documents": ["' + "many words " * 4000 + '"]}', "line 2: the prompt has"),
    ],
)
def test_bad_rows_are_refused_with_their_line(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(make_rows(1)[0]) + "\n" + line)
    with pytest.raises(InvalidInput) as caught:
        encode_rows(read_rows(path), TOKENIZER, window=4096)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_without_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(InvalidInput, match="holds no row"):
        read_rows(tmp_path / "empty.jsonl")
    with pytest.raises(InvalidInput, match="cannot read"):
        read_rows(tmp_path / "absent.jsonl")


def test_a_row_is_the_prompt_that_the_runtime_would_build(tmp_path: Path) -> None:
    row = make_rows(1)[0]
    (example,) = examples_of(write_rows(tmp_path / "rows.jsonl", [row]), TINY)
    asked = PromptBuilder(TOKENIZER).build(system=row["system"], documents=row["documents"], question=row["question"])
    assert example.prompt == asked
    assert [span.segment.kind for span in asked.spans] == ["system", "document", "document"]
    assert TOKENIZER.decode(example.answer_ids) == row["answer"]
    assert example.answer_ids[-1] in TOKENIZER.eos_token_ids
    assert example.taught


def test_all_forms_of_a_row_give_the_same_example(tmp_path: Path) -> None:
    row = make_rows(1)[0]
    messages = [
        {"role": "system", "content": row["system"]},
        {"role": "user", "content": "\n\n".join((*row["documents"], row["question"]))},
    ]
    reply = {"role": "assistant", "content": row["answer"]}
    forms: list[dict[str, Any]] = [
        row,
        {"messages": messages, "segments": row["documents"], "answer": row["answer"]},
        {"messages": messages, "documents": [{"text": text} for text in row["documents"]], "answer": reply},
        {"messages": [*messages, reply], "segments": row["documents"]},
    ]
    made = examples_of(write_rows(tmp_path / "rows.jsonl", forms), TINY)
    assert len({(e.prompt, e.answer_ids, e.taught) for e in made}) == 1


def test_calls_in_answers_get_the_tokens_of_the_template(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "find_crew", "arguments": {"day": 4}}}
    base = {"question": "Who left on day 4?", "tools": [TOOL]}
    rows = [base | {"answer": CALL}, base | {"answer": {"role": "assistant", "tool_calls": [call]}}]
    written, given = examples_of(write_rows(tmp_path / "rows.jsonl", rows), TINY)
    assert written.answer_ids == given.answer_ids
    assert "find_crew" in TOKENIZER.decode(given.answer_ids)


def test_a_sample_holds_rows_of_both_forms_and_disjoint_names(tmp_path: Path) -> None:
    write_sample(tmp_path / "a.jsonl", 60)
    write_sample(tmp_path / "b.jsonl", 60, split="heldout", answers=False)
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert {"messages", "question"} <= {key for row in rows for key in row}
    examples = encode_rows(read_rows(tmp_path / "a.jsonl"), TOKENIZER, window=8192)
    assert all(example.taught and example.prompt.spans for example in examples)
    assert not any(e.answer_ids for e in encode_rows(read_rows(tmp_path / "b.jsonl"), TOKENIZER, window=8192))
    assert len(read_prompts(tmp_path / "a.jsonl")) == 60  # the same file serves calibration
    with pytest.raises(InvalidInput, match="exists"):
        write_sample(tmp_path / "a.jsonl", 1)


@pytest.mark.parametrize("head", [0, 8])
def test_targets_cover_the_documents_once_and_end_with_the_answer(tmp_path: Path, head: int) -> None:
    (example,) = examples_of(write_rows(tmp_path / "rows.jsonl", make_rows(1)), TINY)
    plan = make_plan(example.prompt, ReusePolicy(head_seam=head))
    wanted = Wanted(document=True, distilled=True)
    ordinary = row_targets(example, plan, wanted, isolated=False)
    isolated = row_targets(example, plan, wanted, isolated=True)
    inside = [target for build in plan.builds for target in build_targets(build)]
    # Of every interior's end, the first token of the tail seam is predicted by no pass: its build ends there.
    assert len(ordinary) == len(isolated) + len(inside) + 2
    answers = [target for target in isolated if target.kind == ANSWER]
    assert tuple(target.token for target in answers) == example.answer_ids
    assert {target.kind for target in (*ordinary, *inside)} == {ANSWER, DOCUMENT}
    assert set(isolated) <= set(ordinary)


def test_without_an_answer_live_tokens_behind_the_first_segment_are_distilled(tmp_path: Path) -> None:
    (example,) = examples_of(write_rows(tmp_path / "rows.jsonl", make_rows(1, answers=False)), TINY)
    plan = make_plan(example.prompt, ReusePolicy())
    wanted = Wanted(document=False, distilled=True)
    targets = row_targets(example, plan, wanted, isolated=True)
    assert {target.kind for target in targets} == {FOLLOW}
    first = next(span for span in plan.spans if span.start == plan.notes[1].reused.start)  # type: ignore[union-attr]
    live = [p for span in plan.spans if type(span).__name__ == "LiveSpan" for p in range(span.start, span.end)]
    assert [target.position for target in targets] == [p for p in live if p >= first.end]
    assert row_targets(example, plan, wanted, isolated=False) == targets
    assert not row_targets(example, plan, Wanted(document=False, distilled=False), isolated=True)


def test_passes_hold_every_example_once_within_their_budget(tmp_path: Path) -> None:
    examples = examples_of(write_rows(tmp_path / "rows.jsonl", make_rows(7)), TINY)
    budget = 2 * max(example.num_tokens for example in examples)
    groups = list(in_passes(examples, budget))
    assert [index for group in groups for index in group] == list(range(7))
    assert all(sum(examples[i].num_tokens for i in group) <= budget for group in groups)
    assert [len(group) for group in in_passes(examples, 1)] == [1] * 7
