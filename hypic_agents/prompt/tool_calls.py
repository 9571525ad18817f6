"""Tool calls that a model wrote in its answer."""

from __future__ import annotations

import json
import re

from hypic_agents.core import ToolCall

_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


def parse_tool_calls(text: str) -> tuple[ToolCall, ...]:
    """Calls written as ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``; malformed ones stay text."""
    calls: list[ToolCall] = []
    for found in _CALL.findall(text):
        try:
            call = json.loads(found)
        except ValueError:
            continue
        arguments = call.get("arguments", {})
        if isinstance(call.get("name"), str) and isinstance(arguments, dict):
            calls.append(ToolCall(call["name"], arguments, f"call_{len(calls)}"))
    return tuple(calls)
