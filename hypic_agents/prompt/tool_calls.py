"""Tool calls that a model wrote in its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypic_agents.calls import ToolCall
from hypic_agents.prompt.call_text import CALL, CallReader


def parse_tool_calls(text: str, tools: Sequence[Mapping[str, Any]] = ()) -> tuple[ToolCall, ...]:
    """Calls between ``<tool_call>`` and ``</tool_call>``; malformed ones stay text.

    Args:
        text: The answer.
        tools: Specs that tell what type an argument has where the model's spelling does not.
    """
    functions = [tool.get("function", tool) for tool in tools]
    schemas = {str(function.get("name")): function.get("parameters") or {} for function in functions}
    calls: list[ToolCall] = []
    _, found, rest = text.partition(CALL)
    while found:
        reader = CallReader(schemas)
        reader.push(rest)
        call = reader.result(f"call_{len(calls)}") if reader.closed else None
        if isinstance(call, ToolCall):
            calls.append(call)
        _, found, rest = (reader.rest if reader.closed else rest).partition(CALL)
    return tuple(calls)
