"""Calls spelled with tags, for models whose template teaches them: each is read back with the types of its schema."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hypic_agents.core import Grammar
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.prompt.tool_calls import parse_tool_calls
from hypic_agents.runtime.grammar import Grammars
from hypic_agents.runtime.grammar_tags import tagged_call
from tests.runtime.grammars import RECURSIVE, babble, tokenizer, tool
from tests.runtime.models import VOCAB

STRING = {"type": "string"}
EDIT = tool("edit", path=STRING, text=STRING)
MIXED = tool(
    "mixed", a={"type": "string", "maxLength": 8}, b={"type": "integer"}, c={"enum": ["x", "y z"], "type": "string"}
)
MIXED["function"]["parameters"]["properties"]["d"] = {"type": ["string", "null"]}
TREE = tool("tree", term={"$ref": "#/$defs/term"})
TREE["function"]["parameters"]["$defs"] = RECURSIVE["$defs"]
DATED = tool("dated", day={"type": "string", "format": "date"})
NONE = tool("none")
TOOLS = [EDIT, MIXED, TREE, DATED, NONE]


@functools.cache
def tagging() -> Grammars:
    own = ChatTokenizer(tokenizer()._tokenizer, chat_template="{{ '<function=' }}")
    return Grammars(own, VOCAB, 0)


@pytest.mark.parametrize("one", TOOLS, ids=[t["function"]["name"] for t in TOOLS])
def test_any_call_is_read_back_with_its_types(one: Any) -> None:
    name, schema = one["function"]["name"], one["function"]["parameters"]
    grammar = Grammar("tool_calls", json.dumps({"tools": TOOLS, "choice": name, "parallel": False}))
    for seed in range(8):
        text, state = babble(grammar, 150, random.Random(seed), made=tagging())
        assert state.complete
        (call,) = parse_tool_calls(text, TOOLS)
        assert call.name == name
        Draft202012Validator(schema).validate(call.arguments)
        assert ("<function=" in text) == (name != "dated")


def test_text_is_written_as_it_is() -> None:
    lines, schemas = tagged_call("edit", _closed(EDIT), "call") or ([], {})
    assert schemas == {}
    assert lines[0] == (
        'call: "\\n<function=edit>\\n" "<parameter=path>\\n" call_0 "<parameter=text>\\n" call_1 "</function>\\n"'
    )
    assert lines[1].startswith("call_0[lazy]: ")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": STRING}},
        {"type": "object", "properties": {"a": STRING | {"pattern": "x"}}, "additionalProperties": False},
        {"type": "object", "properties": {"a b": STRING}, "additionalProperties": False},
        {
            "type": "object",
            "properties": {"a": {"type": "string", "enum": ["</parameter>"]}},
            "additionalProperties": False,
        },
        {"type": "object", "properties": {"a": STRING}, "additionalProperties": False, "anyOf": [{}]},
    ],
    ids=["free", "open", "pattern", "name", "value", "more"],
)
def test_what_tags_cannot_say_is_left_to_json(schema: Any) -> None:
    assert tagged_call("f", schema, "call") is None


def _closed(one: Any) -> Any:
    return one["function"]["parameters"] | {"additionalProperties": False}
