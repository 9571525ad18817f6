"""Tools in every form LangChain code uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

Tool = Mapping[str, Any] | type | Callable[..., Any] | BaseTool


def tool_specs(tools: Sequence[Tool], *, strict: bool | None = None) -> list[dict[str, Any]]:
    """Specs in OpenAI's shape. Where names repeat, the last tool of a name counts, in the place of the first."""
    specs = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
    return list({spec.get("function", spec).get("name"): spec for spec in specs}.values())
