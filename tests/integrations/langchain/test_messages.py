"""Messages, tools and tool choices in every form LangChain has."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from pydantic import BaseModel

from hypic_agents.errors import InvalidInput, InvalidMessages
from hypic_agents.integrations.langchain.messages import to_backend
from hypic_agents.integrations.langchain.tools import tool_specs
from hypic_agents.integrations.tool_choice import parse_tool_choice

TEXT = {"type": "text", "text": "a"}
CALL = {"name": "find", "args": {"q": "x"}, "id": "c1", "type": "tool_call"}
SENT_CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": {"q": "x"}}}


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        (SystemMessage("a"), {"role": "system", "content": "a"}),
        (HumanMessage("a", name="ann"), {"role": "user", "content": "a", "name": "ann"}),
        (HumanMessageChunk("a"), {"role": "user", "content": "a"}),
        (HumanMessage([TEXT, "b"]), {"role": "user", "content": [TEXT, "b"]}),
        (
            HumanMessage([{"type": "text-plain", "text": "page", "title": "t", "mime_type": "text/plain"}]),
            {"role": "user", "content": [{"type": "text", "text": "page"}]},
        ),
        (
            HumanMessage([{"type": "document", "source": {"type": "text", "data": "page"}}]),
            {"role": "user", "content": [{"type": "text", "text": "page"}]},
        ),
        (ChatMessage("a", role="developer"), {"role": "developer", "content": "a"}),
        (FunctionMessage("a", name="find"), {"role": "tool", "content": "a", "name": "find"}),
        (ToolMessage("a", tool_call_id="c1"), {"role": "tool", "content": "a", "tool_call_id": "c1"}),
        (AIMessage("a", tool_calls=[CALL]), {"role": "assistant", "content": "a", "tool_calls": [SENT_CALL]}),
        (AIMessageChunk("a"), {"role": "assistant", "content": "a"}),
        (
            AIMessage("a", additional_kwargs={"reasoning_content": "hm"}),
            {"role": "assistant", "content": "a", "reasoning_content": "hm"},
        ),
        (
            AIMessage(
                [
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "c1", "name": "find", "input": {"q": "x"}},
                    {"type": "tool_call", "id": "c1", "name": "find", "args": {"q": "x"}},
                ],
                tool_calls=[CALL],
            ),
            {"role": "assistant", "content": [{"type": "text", "text": "a"}], "tool_calls": [SENT_CALL]},
        ),
        (
            AIMessage("", invalid_tool_calls=[{"name": "find", "args": '{"q"', "id": "c1", "error": "cut"}]),
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q"'}}],
            },
        ),
    ],
)  # fmt: skip
def test_messages(message: BaseMessage, sent: dict[str, Any]) -> None:
    assert to_backend([message]) == [sent]


def test_a_message_for_no_model_is_refused() -> None:
    with pytest.raises(InvalidMessages, match="message 1 is a RemoveMessage"):
        to_backend([HumanMessage("a"), RemoveMessage(id="1")])


@tool
def find(q: str) -> str:
    """Find a thing."""
    return q


class Add(BaseModel):
    """Add two numbers."""

    a: int
    b: int


def test_tools_of_every_kind() -> None:
    def bare(x: int) -> int:
        """Do a thing."""
        return x

    schema = {"name": "plain", "description": "d", "parameters": {"type": "object", "properties": {}}}
    anthropic = {"name": "other", "description": "d", "input_schema": {"type": "object", "properties": {}}}
    specs = tool_specs([find, Add, bare, schema, anthropic])
    assert [spec["function"]["name"] for spec in specs] == ["find", "Add", "bare", "plain", "other"]
    assert all(spec["type"] == "function" for spec in specs)
    assert tool_specs(specs) == specs
    assert tool_specs([find], strict=True)[0]["function"]["strict"] is True


def test_of_two_tools_of_one_name_the_last_counts() -> None:
    later = {"name": "find", "description": "later", "parameters": {"type": "object", "properties": {}}}
    specs = tool_specs([find, Add, later])
    assert [spec["function"]["name"] for spec in specs] == ["find", "Add"]
    assert specs[0]["function"]["description"] == "later"


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        (None, "auto"),
        (False, "auto"),
        ("auto", "auto"),
        ({"type": "auto"}, "auto"),
        ("none", "none"),
        ({"type": "none"}, "none"),
        (True, "required"),
        ("any", "required"),
        ("required", "required"),
        ({"type": "any"}, "required"),
        ("find", "find"),
        ({"type": "function", "function": {"name": "find"}}, "find"),
        ({"type": "tool", "name": "find"}, "find"),
    ],
)
def test_choices(given: Any, choice: str) -> None:
    assert parse_tool_choice(given, tool_specs([find, Add])) == choice


def test_a_choice_of_no_tool_is_refused() -> None:
    for given in ("search", {"type": "function", "function": {"name": "search"}}):
        with pytest.raises(InvalidInput, match="find, Add"):
            parse_tool_choice(given, tool_specs([find, Add]))
