"""Calls in finished answers: both spellings, several, and what is no call."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.prompt.tool_calls import parse_tool_calls


def written(name: str, arguments: object) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {json.dumps(arguments)}}}\n</tool_call>'


TEXTS = st.text() | st.sampled_from(["}\n</tool_call>", "<tool_call>", '"}}</tool_call>', "\\"])


@given(st.lists(st.tuples(TEXTS.filter(bool), st.dictionaries(TEXTS, TEXTS | st.integers() | st.none())), max_size=3))
def test_what_was_written_is_read_back(calls: list[tuple[str, dict[str, object]]]) -> None:
    text = "Let me see.\n" + "\n".join(written(name, arguments) for name, arguments in calls)
    found = parse_tool_calls(text)
    assert [(call.name, call.arguments) for call in found] == calls
    assert [call.id for call in found] == [f"call_{i}" for i in range(len(calls))]


@pytest.mark.parametrize(
    "text",
    [
        "no call",
        "<tool_call>",
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        "<tool_call>\n[1]\n</tool_call>",
        "<tool_call>\nnot json\n</tool_call>",
    ],
)
def test_malformed_calls_stay_text(text: str) -> None:
    assert parse_tool_calls(text) == ()


def test_a_malformed_call_does_not_hide_the_next() -> None:
    text = f"<tool_call>\n[1]\n</tool_call>\n{written('g', {})}"
    assert [call.name for call in parse_tool_calls(text)] == ["g"]


def test_tags_with_the_types_of_the_schema() -> None:
    values = "<parameter=a>\n12\n</parameter>\n<parameter=b>\n12\n</parameter>"
    text = f"<tool_call>\n<function=f>\n{values}\n</function>\n</tool_call>"
    properties = {"a": {"type": "string"}, "b": {"type": "integer"}}
    tool = {"function": {"name": "f", "parameters": {"properties": properties}}}
    assert parse_tool_calls(text, [tool])[0].arguments == {"a": "12", "b": 12}
    assert parse_tool_calls(text)[0].arguments == {"a": 12, "b": 12}
