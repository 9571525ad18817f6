"""Calls spelled with tags, as the chat templates of some models teach it, in the syntax of llguidance. Pure.

``<function=f>``, a ``<parameter=x>`` a property, ``</function>``. A property that is a string is written as it is; all
others as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

END_PARAMETER = "\n</parameter>\n"

_NAME = re.compile(r"[^<>\s]+")
_CALL_KEYS = frozenset({"type", "properties", "required", "additionalProperties", "$defs", "definitions"})
_NOTES = frozenset({"title", "description", "default", "examples", "deprecated"})
_STRING_KEYS = frozenset({"type", "enum", "const", "minLength", "maxLength"})
# Ends at the first end tag: the tag may not stand in the value.
_END = r"\n<\/parameter>\n"
_ONE_END = r"~/(?s:.*)<\/parameter>(?s:.*)<\/parameter>(?s:.*)/"


def tagged_call(name: str, schema: Mapping[str, Any], rule: str) -> tuple[list[str], dict[str, Any]] | None:
    """Rules for what stands between the marks of a call; None where this spelling cannot say what the schema asks.

    Args:
        name: Of the function.
        schema: Prepared schema of its arguments.
        rule: Name of the rule to define.

    Returns:
        Lines of the grammar, and the schemas of the values that they refer to.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not _NAME.fullmatch(name) or schema.keys() - _NOTES - _CALL_KEYS or schema.get("additionalProperties", True):
        return None
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    required = schema.get("required", [])
    lines, schemas, parts = [], {}, []
    for index, (key, value) in enumerate(properties.items()):
        if value is False and key not in required:
            continue
        if not _NAME.fullmatch(key) or not isinstance(value, Mapping):
            return None
        part = f"{rule}_{index}"
        if value.get("type") == "string":
            text = _text_rule(value)
            if text is None:
                return None
            lines.append(f"{part}{text}")
            whole = f"{quoted(f'<parameter={key}>{chr(10)}')} {part}"
        else:
            schemas[part] = {**definitions, **value}
            whole = f"{quoted(f'<parameter={key}>{chr(10)}')} @{part} {quoted(END_PARAMETER)}"
        parts.append(whole if key in required else f"({whole})?")
    head, end = quoted(f"\n<function={name}>\n"), quoted("</function>\n")
    return [f"{rule}: {' '.join([head, *parts, end])}", *lines], schemas


def _text_rule(schema: Mapping[str, Any]) -> str | None:
    """The body of a rule for a string and the end tag behind it."""
    if schema.keys() - _NOTES - _STRING_KEYS:
        return None
    listed = schema.keys() & {"enum", "const"}
    if listed and len(schema.keys() - _NOTES - {"type"}) > 1:
        return None
    if listed:
        values = schema.get("enum", [schema.get("const")])
        texts = [value for value in values if isinstance(value, str)]
        if not texts or any("</parameter>" in text or text != text.strip("\n") for text in texts):
            return None
        return f": ({' | '.join(map(quoted, texts))}) {quoted(END_PARAMETER)}"
    low, high = schema.get("minLength", 0), schema.get("maxLength", "")
    return f"[lazy]: /(?s:.{{{low},{high}}}){_END}/ & {_ONE_END}"


def quoted(text: str) -> str:
    """A literal of the grammar."""
    return json.dumps(text, ensure_ascii=False)
