"""Answers come apart the same way however they are cut into pieces."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.completion import StreamChunk
from hypic_agents.prompt.answer import AnswerReader

TOOLS = [
    {"type": "function", "function": {"name": "find", "parameters": {"properties": {"q": {"type": "string"}}}}},
    {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}},
]


def call(name: str, **arguments: Any) -> str:
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def tags(name: str, **arguments: Any) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def read(text: str, cuts: list[int] | None = None, **options: Any) -> tuple[AnswerReader, list[StreamChunk]]:
    reader = AnswerReader(options.pop("tools", TOOLS), **options)
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts or [])})
    chunks = [reader.push(text[a:b]) for a, b in pairwise(edges)]
    return reader, [chunk for chunk in [*chunks, reader.finish()] if chunk is not None]


def parts(reader: AnswerReader) -> tuple[Any, ...]:
    calls = [(c.name, dict(c.arguments)) for c in reader.tool_calls]
    return reader.text, reader.reasoning, calls, [(c.name, c.arguments, c.error) for c in reader.invalid_tool_calls]


CASES = {
    "plain": ("A plain answer. \n", ("A plain answer. \n", "", [], [])),
    "one call": (call("find", q='a {b} \\ " c'), ("", "", [("find", {"q": 'a {b} \\ " c'})], [])),
    "text and calls": (
        f"I look.\n{call('find', q='x')}\n{call('add', a=1, b=[2, {'c': '}'}])}",
        ("I look.", "", [("find", {"q": "x"}), ("add", {"a": 1, "b": [2, {"c": "}"}]})], []),
    ),
    "text behind a call": (f"{call('find', q='x')}\n\nDone. ", ("Done. ", "", [("find", {"q": "x"})], [])),
    "tags": (tags("find", q="7"), ("", "", [("find", {"q": "7"})], [])),
    "typed tags": (tags("add", a=1, b="x\ny"), ("", "", [("add", {"a": 1, "b": "x\ny"})], [])),
    "tags without parameters": (tags("find"), ("", "", [("find", {})], [])),
    "other key order": (
        '<tool_call>{"arguments": {"q": "x"}, "name": "find"}</tool_call>',
        ("", "", [("find", {"q": "x"})], []),
    ),
    "no arguments": ('<tool_call>{"name": "find"}</tool_call>', ("", "", [("find", {})], [])),
    "the end mark inside a string": (call("find", q="</tool_call>"), ("", "", [("find", {"q": "</tool_call>"})], [])),
    "no call": ("<tool_call>find it</tool_call> ok", ("<tool_call>find it</tool_call> ok", "", [], [])),
    "a list": ("<tool_call>[1]</tool_call>", ("<tool_call>[1]</tool_call>", "", [], [])),
    "cut before the name": ('<tool_call>{"na', ('<tool_call>{"na', "", [], [])),
    "cut short": (
        '<tool_call>{"name": "find", "arguments": {"q": "a',
        ("", "", [], [("find", '{"q": "a', "the answer ended inside the call")]),
    ),
    "cut behind the arguments": (
        '<tool_call>{"name": "find", "arguments": {"q": "a"}',
        ("", "", [("find", {"q": "a"})], []),
    ),
    "reasoning": ("<think>\nHm.\n</think>\n\nYes.", ("Yes.", "Hm.", [], [])),
    "reasoning and a call": (f"<think>a</think>\n{call('find', q='x')}", ("", "a", [("find", {"q": "x"})], [])),
    "unfinished reasoning": ("<think>\nHm, a ", ("", "Hm, a ", [], [])),
    "a mark later on is text": ("so <think> it", ("so <think> it", "", [], [])),
    "half a mark": ("a <tool_ca", ("a <tool_ca", "", [], [])),
    "blank": ("  \n", ("  \n", "", [], [])),
    "empty": ("", ("", "", [], [])),
}


@pytest.mark.parametrize("case", CASES)
@given(cuts=st.lists(st.integers(0, 400), max_size=12))
def test_parts_do_not_depend_on_the_cuts(case: str, cuts: list[int]) -> None:
    text, expected = CASES[case]
    reader, chunks = read(text, cuts)
    assert parts(reader) == expected
    assert "".join(chunk.text for chunk in chunks) == reader.text
    assert "".join(chunk.reasoning for chunk in chunks) == reader.reasoning


@pytest.mark.parametrize("case", CASES)
def test_deltas_make_up_the_calls(case: str) -> None:
    text, _ = CASES[case]
    reader, chunks = read(text, list(range(len(text))))
    calls = [*reader.tool_calls, *reader.invalid_tool_calls]
    deltas = [delta for chunk in chunks for delta in chunk.tool_calls]
    for index, one in enumerate(calls):
        own = [delta for delta in deltas if delta.index == index]
        assert [(d.name, d.id) for d in own if d.id] == [(one.name, one.id)]
        joined = "".join(d.arguments for d in own)
        assert (joined if isinstance(one.arguments, str) else json.loads(joined)) == one.arguments
    assert len({c.id for c in calls}) == len(calls)
    assert {d.index for d in deltas} == set(range(len(calls)))


def test_arguments_stream_while_they_are_written() -> None:
    text = call("find", q="a long text that takes many tokens")
    reader = AnswerReader(TOOLS)
    reader.push(text[:60])
    assert reader.tool_calls == []
    chunk = reader.push(text[60:70])
    assert chunk is not None
    assert chunk.tool_calls[0].arguments == text[60:70]


def test_without_tools_calls_are_text() -> None:
    text = call("find", q="x")
    reader, _ = read(text, [3, 20], tools=[])
    assert parts(reader) == (text, "", [], [])


def test_a_prompt_may_end_inside_the_reasoning() -> None:
    reader, _ = read("\nHm.</think>\n\nYes.", [5, 9], in_reasoning=True)
    assert parts(reader) == ("Yes.", "Hm.", [], [])


@given(st.text(), st.lists(st.integers(0, 400), max_size=8))
def test_any_text_without_marks_is_itself(text: str, cuts: list[int]) -> None:
    if "<t" not in text:
        reader, _ = read(text, cuts)
        assert reader.text == text


@given(st.text(alphabet='<>/tool_cahink{}"\\: n', max_size=80), st.lists(st.integers(0, 400), max_size=8))
def test_noise_reads_the_same_however_cut(text: str, cuts: list[int]) -> None:
    assert parts(read(text, cuts)[0]) == parts(read(text)[0])
