"""The file of prompts: both forms, and one clear error for each way to get a line wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hypic_agents.core import Segment
from hypic_agents.errors import InvalidInput, InvalidPrompts
from hypic_agents.quality.calibrate.prompts import PromptRecord, read_prompts
from hypic_agents.quality.calibrate.sample import write_sample
from hypic_agents.quality.worlds import TASKS

GOOD = {"question": "Who?"}


def write(path: Path, *lines: Any) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_both_forms_are_read(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Ann is 9.\n\nHow old is Ann?"}]
    path = write(
        tmp_path / "p.jsonl",
        {"messages": chat, "segments": [{"text": "Ann is 9.", "kind": "memory", "source_id": 7}], "answer": "9"},
        "",
        {"system": "Be brief.", "documents": ["Bob is 8."], "question": "How old is Bob?", "answer": None},
    )
    first, second = read_prompts(path)
    assert first == PromptRecord(
        1, "How old is Ann?", tuple(chat), None, (), (Segment("Ann is 9.", "memory", "7"),), "9"
    )
    assert second == PromptRecord(3, "How old is Bob?", (), "Be brief.", (), (Segment("Bob is 8."),), None)


def test_line_separators_inside_a_text_do_not_end_the_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"question": "one\u2028two\u0085three"}\r\n{"question": "next"}\r\n', encoding="utf-8")
    assert [record.question for record in read_prompts(path)] == ["one\u2028two\u0085three", "next"]


def test_the_question_of_a_chat_in_blocks_is_found(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "Sheet."}, {"type": "text", "text": "Who?"}]
    path = write(tmp_path / "p.jsonl", {"messages": [{"role": "user", "content": content}], "documents": ["Sheet."]})
    assert read_prompts(path)[0].question == "Who?"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "a list, not an object"),
        ({}, "neither messages nor a question"),
        ({"question": " "}, "question is empty"),
        ({"question": 3}, "question is a number; give text"),
        ({"question": "Who?", "context": "x"}, "'context' is not known here; the fields are"),
        ({"messages": [{"role": "user", "content": "Who?"}], "question": "Who?"}, "'question' is not known here"),
        ({"messages": []}, "messages is empty"),
        ({"messages": "Who?"}, "messages is text; give a list"),
        ({"messages": ["Who?"]}, r"messages\[0\] is no object with a role"),
        (
            {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I."}]},
            "move its text to 'answer'",
        ),
        ({**GOOD, "answer": ""}, "answer is empty; give text, or leave it out"),
        ({**GOOD, "answer": ["I"]}, "answer is a list"),
        ({**GOOD, "documents": "sheet"}, "documents is text; give a list"),
        ({**GOOD, "documents": [3]}, r"documents\[0\] is a number"),
        ({**GOOD, "documents": ["a", {"text": ""}]}, r"documents\[1\] text is empty"),
        ({**GOOD, "segments": [{"text": "a", "kind": "page"}]}, r"segments\[0\] has the unknown kind 'page'"),
        ({**GOOD, "documents": [{"text": "a", "id": 1}]}, r"documents\[0\] has the unknown field 'id'"),
        ({**GOOD, "documents": ["a"], "segments": ["b"]}, "keep one of them"),
        ({**GOOD, "tools": ["add"]}, r"tools\[0\] is text; give an object"),
    ],
)
def test_a_bad_line_is_named_with_its_remedy(tmp_path: Path, line: Any, says: str) -> None:
    path = write(tmp_path / "p.jsonl", GOOD, line)
    with pytest.raises(InvalidPrompts, match=says) as caught:
        read_prompts(path)
    assert f"{path}, line 2: " in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_bad_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPrompts, match="no file"):
        read_prompts(tmp_path / "missing.jsonl")
    with pytest.raises(InvalidPrompts, match="cannot read"):
        read_prompts(tmp_path)
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "\xe9"}')
    with pytest.raises(InvalidPrompts, match="not UTF-8"):
        read_prompts(tmp_path / "latin.jsonl")
    with pytest.raises(InvalidPrompts, match="holds no prompt"):
        read_prompts(write(tmp_path / "blank.jsonl", "", "  "))


def test_a_sample_is_readable_covers_every_task_and_depends_on_the_seed_alone(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert write_sample(tmp_path / name, 2, seed) == 2 * len(TASKS)
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in "abc"]
    assert texts[0] == texts[1] != texts[2]
    records = read_prompts(tmp_path / "a")
    assert len({record.question for record in records}) > len(TASKS)
    assert all(record.answer and record.documents for record in records)
    assert any(record.tools for record in records)
    assert all(len(record.question) < 300 for record in records), "documents are not part of the question"


def test_a_sample_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("{}", encoding="utf-8")
    with pytest.raises(InvalidInput, match="exists already"):
        write_sample(tmp_path / "mine.jsonl", 1, 0)
    assert (tmp_path / "mine.jsonl").read_text(encoding="utf-8") == "{}"
    with pytest.raises(InvalidInput, match="cannot write"):
        write_sample(tmp_path / "missing" / "x.jsonl", 1, 0)
