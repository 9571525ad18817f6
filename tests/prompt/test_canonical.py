from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.errors import InvalidMessages
from hypic_agents.prompt.canonical import canonical_tool, render_tool, tool_forms

NAME_MAPS = {"properties", "$defs"}
leaves = st.sampled_from([{"type": "string"}, {"type": "integer", "minimum": 1, "default": 3}, {"enum": ["b", "a"]}])
names = st.sampled_from(["q", "type", "required", "a", "limit"])
schemas = st.recursive(
    leaves,
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, inner)},
        optional={"required": st.just(["q"]), "additionalProperties": st.just(False), "anyOf": st.lists(inner)},
    ),
    max_leaves=6,
)


def shuffled(value: Any, random: Any, key: str = "") -> Any:
    if isinstance(value, list):
        return [shuffled(item, random) for item in value]
    if not isinstance(value, dict):
        return value
    order = list(value)
    if key not in NAME_MAPS:
        random.shuffle(order)
    return {name: shuffled(value[name], random, "" if key in NAME_MAPS else name) for name in order}


@given(schema=schemas, random=st.randoms())
def test_key_order_does_not_matter(schema: dict[str, Any], random: Any) -> None:
    tool = {"type": "function", "function": {"name": "find", "description": "Find.", "parameters": schema}}
    assert render_tool(shuffled(tool, random)) == render_tool(tool)
    assert json.loads(render_tool(tool)) == tool


def test_schema_keys_permuted() -> None:
    first = {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Find.",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "additionalProperties": False},
        },
    }
    second = {
        "function": {
            "parameters": {"additionalProperties": False, "properties": {"q": {"type": "string"}}, "type": "object"},
            "description": "Find.",
            "name": "find",
        },
        "type": "function",
    }
    assert render_tool(first) == render_tool(second) == json.dumps(first)


def test_property_names_keep_the_callers_order() -> None:
    spec = {"name": "f", "parameters": {"properties": {"z": {}, "required": {"description": "d", "type": "string"}}}}
    assert '"properties": {"z": {}, "required": {"type": "string", "description": "d"}}' in render_tool(spec)


def test_bare_functions_are_wrapped() -> None:
    wrapped = {"type": "function", "function": {"name": "f", "strict": True}}
    assert canonical_tool({"strict": True, "name": "f", "type": "function"}) == wrapped


def test_forms_cover_the_layouts_of_common_templates() -> None:
    tool = canonical_tool({"name": "f", "description": "汉"})
    forms = list(tool_forms(tool))
    assert forms[0] == json.dumps(tool, ensure_ascii=False)
    assert json.dumps(tool["function"], indent=4) in forms


@pytest.mark.parametrize(
    "tool", ["f", {}, {"function": "f"}, {"function": {"name": ""}}, {"name": "f", "parameters": {"default": {1, 2}}}]
)
def test_specs_that_cannot_be_rendered_are_refused(tool: Any) -> None:
    with pytest.raises(InvalidMessages):
        canonical_tool(tool)
