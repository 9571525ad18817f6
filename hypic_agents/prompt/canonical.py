"""One spelling for a tool spec, whatever key order its author or serialiser chose.

The order of tools is the caller's, and so is the order of property names, since both carry meaning for the model. Only
the order of JSON keys without meaning is fixed, so equal specs render to equal text and share one cache entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hypic_agents.errors import InvalidMessages

_SPEC_ORDER = ("type", "function")
_FUNCTION_ORDER = ("name", "description", "parameters")
_SCHEMA_ORDER = ("type", "properties", "required")
_NAME_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_PLAIN_DATA = frozenset({"const", "default", "enum", "example", "examples"})
_LAYOUTS: tuple[dict[str, Any], ...] = ({}, {"indent": 4}, {"indent": 2}, {"separators": (",", ":")})


def canonical_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The spec as ``{"type": "function", "function": {...}}`` with its keys in a fixed order.

    A bare function (``{"name": ..., "parameters": ...}``) is wrapped.

    Raises:
        InvalidMessages: The spec is no mapping, has no name, or holds what JSON cannot.
    """
    if not isinstance(tool, Mapping):
        raise InvalidMessages(f"a tool spec must be a mapping in OpenAI's format, not {type(tool).__name__}")
    spec = dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}
    function = spec["function"]
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        raise InvalidMessages(f"a tool spec needs a function with a name, found {str(tool)[:200]}")
    if "function" not in tool and function.get("type") == "function":
        function = {key: value for key, value in function.items() if key != "type"}
    spec = {"type": "function", **spec, "function": _ordered_function(function)}
    try:
        json.dumps(spec)
    except (TypeError, ValueError) as error:
        raise InvalidMessages(f"the spec of tool {function['name']!r} cannot be written as JSON: {error}") from error
    return {key: spec[key] for key in _key_order(spec, _SPEC_ORDER)}


def tool_name(tool: Mapping[str, Any]) -> str:
    """The function's name in a canonical spec."""
    return str(tool["function"]["name"])


def render_tool(tool: Mapping[str, Any]) -> str:
    """The canonical spec on one line, as chat templates write it with ``tojson``."""
    return json.dumps(canonical_tool(tool), ensure_ascii=False)


def tool_forms(tool: Mapping[str, Any]) -> Iterator[str]:
    """Texts a chat template may have written for a canonical spec, the most common one first."""
    for value in (tool, tool["function"]):
        for ensure_ascii in (False, True):
            for layout in _LAYOUTS:
                yield json.dumps(value, ensure_ascii=ensure_ascii, **layout)


def _ordered_function(function: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _ordered_schema(function[key], key) for key in _key_order(function, _FUNCTION_ORDER)}


def _ordered_schema(value: Any, key: str) -> Any:
    """``value`` as it stands under ``key``: a schema, a map from names to schemas, a list of either, or plain data."""
    if isinstance(value, Mapping):
        if key in _PLAIN_DATA:
            return {name: _ordered_schema(value[name], key) for name in sorted(value)}
        if key in _NAME_MAPS:
            return {name: _ordered_schema(item, "") for name, item in value.items()}
        return {name: _ordered_schema(value[name], name) for name in _key_order(value, _SCHEMA_ORDER)}
    if isinstance(value, list | tuple):
        return [_ordered_schema(item, key) for item in value]
    return value


def _key_order(value: Mapping[str, Any], first: tuple[str, ...]) -> list[str]:
    return [key for key in first if key in value] + sorted(key for key in value if key not in first)
