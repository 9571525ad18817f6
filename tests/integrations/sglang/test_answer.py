"""Replies of both dialects, whole and in pieces, become one answer."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.completion import Completion, ReuseReport, StreamChunk
from hypic_agents.integrations.sglang import InvalidReply
from hypic_agents.integrations.sglang.answer import Answer
from hypic_agents.integrations.sglang.payload import AnswerForm
from hypic_agents.integrations.sglang.replies import ChatReader, Counts, GenerateReader, Piece

FIND = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
REPORT = ReuseReport("prefix", 9, 9, 0, 0)
END = Piece(finish="stop", counts=Counts(9, 3))
CALLS = json.dumps([{"name": "find", "parameters": {"thing": "ключ"}}, {"name": "find", "parameters": {}}])


def put_together(form: AnswerForm, pieces: list[Piece]) -> tuple[Completion, list[StreamChunk]]:
    answer = Answer(form)
    chunks = [chunk for piece in [*pieces, END] if (chunk := answer.push(piece)) is not None]
    chunks.append(answer.end())
    return answer.completion(REPORT, {}), chunks


def cut_up(text: str, cuts: list[int]) -> list[Piece]:
    edges = [0, *sorted(min(c, len(text)) for c in cuts), len(text)]
    return [Piece(text[a:b]) for a, b in pairwise(edges)]


@given(st.lists(st.integers(0, 120), max_size=6))
def test_calls_that_come_as_json(cuts: list[int]) -> None:
    form = AnswerForm((FIND,), forced=True, json_calls=True)
    done, chunks = put_together(form, cut_up(CALLS, cuts))
    assert [dict(call.arguments) for call in done.tool_calls] == [{"thing": "ключ"}, {}]
    assert done.text == "".join(chunk.text for chunk in chunks) == ""
    deltas = [delta for chunk in chunks for delta in chunk.tool_calls]
    assert [delta.id for delta in deltas] == [call.id for call in done.tool_calls]


@given(
    st.sampled_from(
        ['{"gate": 1}', "[1, 2]", '[{"name": "other", "parameters": {}}]', "", " [", "text [1]", CALLS[:30]]
    ),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_json_that_is_no_call_is_text(text: str, cuts: list[int]) -> None:
    done, chunks = put_together(AnswerForm((FIND,), json_calls=True), cut_up(text, cuts))
    assert done.text == "".join(chunk.text for chunk in chunks) == text
    assert not done.tool_calls


@given(st.lists(st.integers(0, 80), max_size=6))
def test_calls_that_come_as_text_are_read_here(cuts: list[int]) -> None:
    text = 'I look.\n<tool_call>\n{"name": "find", "arguments": {"thing": "key"}}\n</tool_call>'
    done, _ = put_together(AnswerForm((FIND,)), cut_up(text, cuts))
    assert (done.text, [call.name for call in done.tool_calls]) == ("I look.", ["find"])


def chat_event(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def test_calls_that_the_server_took_apart() -> None:
    reader = ChatReader()
    events = [
        chat_event({"role": "assistant", "content": ""}),
        chat_event({"reasoning_content": "Hm."}),
        chat_event({"tool_calls": [{"id": "c1", "index": 0, "function": {"name": "find", "arguments": ""}}]}),
        chat_event({"tool_calls": [{"id": None, "index": 0, "function": {"name": None, "arguments": '{"a"'}}]}),
        chat_event({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
        chat_event({"tool_calls": [{"id": "c2", "index": 1, "function": {"name": "find", "arguments": "[]"}}]}),
        chat_event({}, "tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": None}},
    ]
    answer = Answer(AnswerForm((FIND,)))
    chunks = [chunk for event in events if (chunk := answer.push(reader.read(event))) is not None]
    chunks.append(answer.end())
    done = answer.completion(REPORT, {})
    assert [(call.id, dict(call.arguments)) for call in done.tool_calls] == [("c1", {"a": 1})]
    assert [(call.id, call.error) for call in done.invalid_tool_calls] == [("c2", "the arguments are no JSON object")]
    assert (done.finish_reason, done.reasoning) == ("stop", "Hm.")
    deltas = [delta for chunk in chunks for delta in chunk.tool_calls]
    assert [(delta.index, delta.name, delta.id, delta.arguments) for delta in deltas] == [
        (0, "find", "c1", ""),
        (0, "", "", '{"a"'),
        (0, "", "", ": 1}"),
        (1, "find", "c2", "[]"),
    ]


def test_a_whole_chat_reply() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
    reply = {
        "choices": [
            {
                "message": {"content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
                "finish_reason": "tool_calls",
                "token_ids": [1, 2, 3],
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
    }
    piece = ChatReader().read(reply)
    assert piece.counts == Counts(9, 3, 4)
    assert (piece.finish, piece.token_ids, piece.reasoning, piece.text) == ("stop", (1, 2, 3), "Hm.", "")
    assert piece.calls[0].id == "c1"


def generate_event(text: str, ids: list[int], reason: str | None = None) -> dict[str, Any]:
    finish = {"type": reason} if reason else None
    meta = {"prompt_tokens": 9, "completion_tokens": len(ids), "cached_tokens": 2, "finish_reason": finish}
    return {"text": text, "output_ids": ids, "meta_info": meta}


@pytest.mark.parametrize("incremental", [False, True])
def test_generate_streams_all_so_far_or_what_is_new(incremental: bool) -> None:
    whole = [generate_event("a", [1]), generate_event("a b", [1, 2]), generate_event("a b c", [1, 2, 3], "length")]
    new = [generate_event("a", [1]), generate_event(" b", [2]), generate_event(" c", [3], "length")]
    reader = GenerateReader(incremental=incremental)
    pieces = [reader.read(event) for event in (new if incremental else whole)]
    assert [piece.text for piece in pieces] == ["a", " b", " c"]
    assert [piece.token_ids for piece in pieces] == [(1,), (2,), (3,)]
    assert pieces[-1].finish == "length"


@pytest.mark.parametrize(
    "event",
    [
        None,
        3,
        [],
        {},
        {"text": "a"},
        {"text": "a", "meta_info": {}},
        {"text": "a", "meta_info": {"prompt_tokens": "x"}},
    ],
    ids=str,
)
def test_other_shapes_are_refused(event: Any) -> None:
    with pytest.raises(InvalidReply, match="/generate"):
        GenerateReader(incremental=False).read(event)
    with pytest.raises(InvalidReply, match="completions"):
        ChatReader().read(event)


def test_text_that_is_taken_back_is_refused() -> None:
    reader = GenerateReader(incremental=False)
    reader.read(generate_event("abc", [1]))
    with pytest.raises(InvalidReply):
        reader.read(generate_event("xyz", [1]))


@pytest.mark.parametrize("end", [Piece("a"), Piece(finish="stop"), Piece(counts=Counts(1, 1))])
def test_an_answer_needs_its_end(end: Piece) -> None:
    answer = Answer(AnswerForm())
    answer.push(end)
    with pytest.raises(InvalidReply):
        answer.end()
