"""Tool choices and malformed specs, before any tokenizer is involved."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hypic_agents.core import Grammar
from hypic_agents.errors import InvalidGrammar
from hypic_agents.runtime.grammar_spec import Marks, compile_text, tool_choice

GET = {"name": "get", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
NOW = {"type": "function", "function": {"name": "now"}}


def calls(**spec: Any) -> Grammar:
    return Grammar("tool_calls", json.dumps(spec))


def test_a_choice_by_name_leaves_one_tool() -> None:
    choice = tool_choice(calls(tools=[GET, NOW], choice="now", parallel=False))
    assert dict(choice.arguments) == {"now": {"type": "object", "properties": {}, "additionalProperties": False}}
    assert choice.required and not choice.parallel


def test_the_default_is_auto_and_parallel() -> None:
    choice = tool_choice(calls(tools=[GET, NOW]))
    assert list(choice.arguments) == ["get", "now"]
    assert not choice.required and choice.parallel


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        (calls(), "a list of tools"),
        (calls(tools=[]), "a list of tools"),
        (calls(tools=[GET], choice="set"), "choice='set': use required, auto or one of get"),
        (calls(tools=[GET], choice={"name": "get"}), "choice="),
        (calls(tools=[GET], parallel=1), "parallel=1"),
        (calls(tools=[GET, GET]), "two tools are called 'get'"),
        (calls(tools=[{"description": "x"}]), "a function with a name"),
        (calls(tools=[{"name": "f", "parameters": {"type": "string"}}]), "tool 'f' must be the schema of an object"),
        (calls(tools=[{"name": "f", "parameters": [1]}]), "tool 'f' must be the schema of an object"),
        (Grammar("tool_calls", "{"), "must be JSON"),
        (Grammar("json_schema", "{'type': 'string'}"), "must be JSON"),
        (Grammar("json_schema", "[" * 100_000), "must be JSON"),
        (Grammar("json_schema", "[]"), r"an object or true, not '\[\]'"),
        (Grammar("json_schema", "false"), "an object or true"),
        (Grammar("json_schema", '{"$ref": "#"}'), "requires itself inside itself"),
        (Grammar("xml", ""), "grammar kind 'xml'"),  # type: ignore[arg-type]
    ],
)
def test_malformed_specs_are_named(grammar: Grammar, message: str) -> None:
    with pytest.raises(InvalidGrammar, match=message):
        compile_text(grammar, Marks())


def test_marks_are_tokens_where_the_vocabulary_has_them() -> None:
    grammar = calls(tools=[GET], choice="required", parallel=True)
    assert '\\"<tool_call>\\"' in compile_text(grammar, Marks())
    with_tokens = compile_text(grammar, Marks("<[3]>", "<[4]>"))
    assert "<[3]>" in with_tokens and "<tool_call>" not in with_tokens
