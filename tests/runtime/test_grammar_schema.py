"""What is compiled in place of a schema, and which part of a refused one is named."""

from __future__ import annotations

from typing import Any

import pytest

from hypic_agents.runtime.grammar_schema import find_fault, prepare_schema, walk

CITY = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
CLOSED = CITY | {"additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "prepared"),
    [
        (CITY, CLOSED),
        ({"type": "array", "items": CITY}, {"type": "array", "items": CLOSED}),
        ({"anyOf": [CITY, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"$ref": "#/$defs/c", "$defs": {"c": CITY}}, {"$ref": "#/$defs/c", "$defs": {"c": CLOSED}}),
        ({"allOf": [CITY]}, {"allOf": [CLOSED]}),
        ({"type": "string", "format": "password"}, {"type": "string"}),
        ({"const": {"format": "password", "properties": {}}}, {"const": {"format": "password", "properties": {}}}),
    ],
    ids=["root", "items", "branch", "definition", "one of all", "annotation", "plain data"],
)
def test_objects_that_list_their_properties_are_closed(schema: dict[str, Any], prepared: dict[str, Any]) -> None:
    assert prepare_schema(schema) == prepared


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        CITY | {"additionalProperties": True},
        CITY | {"patternProperties": {"^x": {"type": "string"}}},
        CITY | {"required": ["name", "other"]},
        {"allOf": [CITY, {"type": "object", "properties": {"size": {"type": "integer"}}}]},
        {"$ref": "#/$defs/c", "properties": {"size": {"type": "integer"}}, "$defs": {"c": CITY}},
        {"type": "string", "format": "date"},
    ],
    ids=["free", "said", "patterns", "required elsewhere", "combined", "beside a reference", "a known format"],
)
def test_nothing_else_changes(schema: dict[str, Any]) -> None:
    assert prepare_schema(schema) == schema


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "additionalProperties": False}


def test_a_part_that_requires_itself_is_ruled_out() -> None:
    endless = NODE | {"required": ["next"]}
    assert prepare_schema({"$ref": "#/$defs/node", "$defs": {"node": endless}}) is False
    assert prepare_schema({"$ref": "#"}) is False
    assert prepare_schema({"type": "array", "items": {"$ref": "#"}, "minItems": 1}) is False
    assert prepare_schema({"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1}) is False
    optional = {"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}}, "$defs": {"node": endless}}
    prepared = prepare_schema(optional)
    assert isinstance(prepared, dict)
    assert prepared["properties"] == {"a": False} and prepared["$defs"] == {"node": False}


def test_recursion_that_may_end_stays() -> None:
    for schema in (
        {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
        {"type": "array", "items": {"$ref": "#"}},
        {"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [NODE | {"required": ["next"]}, {"type": "null"}]}}},
    ):
        assert prepare_schema(schema) == schema


def test_walk_knows_schemas_from_names() -> None:
    schema = {"properties": {"items": {"type": "string"}, "a/b~c": {"items": {}}}, "default": {"items": {}}}
    assert [pointer for pointer, _ in walk(schema)] == [
        "#",
        "#/properties/items",
        "#/properties/a~1b~0c",
        "#/properties/a~1b~0c/items",
    ]


def test_the_fault_is_the_innermost_refused_part() -> None:
    def problem(schema: Any) -> str:
        bad = [part for _, part in walk(schema) if part.get("type") == "strin"]
        return "Invalid type: strin" if bad else ""

    schema = {"properties": {"a": {"type": "string"}, "b": {"items": {"type": "strin"}}}}
    assert find_fault(schema, problem) == ("#/properties/b/items", "Invalid type: strin")


def test_a_part_that_fails_only_because_it_is_alone_is_not_blamed() -> None:
    def problem(schema: Any) -> str:
        if "contains" in schema:
            return "Unimplemented keys: contains"
        return "Pointer '/properties/a' does not exist" if "$ref" in schema else ""

    schema = {"contains": {"type": "string"}, "properties": {"b": {"$ref": "#/properties/a"}}}
    assert find_fault(schema, problem) == ("#", "Unimplemented keys: contains")
