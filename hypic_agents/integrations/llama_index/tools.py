"""LlamaIndex tools: their specs, the choice among them, and the calls in a response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from llama_index.core.base.llms.types import ChatResponse, ToolCallBlock
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.tools import BaseTool, FunctionTool
from pydantic_core import from_json

from hypic_agents.errors import MissingToolCall
from hypic_agents.integrations.tool_choice import Choice, parse_tool_choice

_FORM_MAKER: Final = f"{get_function_tool.__qualname__}."


def tool_specs(tools: Sequence[BaseTool | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Specs in OpenAI's shape, under the names that LlamaIndex looks calls up by; the last tool of a name counts."""
    specs: dict[str, dict[str, Any]] = {}
    for tool in tools:
        if isinstance(tool, Mapping):
            specs[tool.get("function", tool).get("name", "")] = dict(tool)
            continue
        spec = tool.metadata.to_openai_tool(skip_length_check=True)
        name = tool.metadata.get_name()
        specs[name] = {**spec, "function": {**spec["function"], "name": name}}
    return list(specs.values())


def choose(tools: Sequence[BaseTool], specs: Sequence[Mapping[str, Any]], choice: Choice, *, required: bool) -> str:
    """The backend's tool choice. A tool that stands for the form of the answer must be called, asked for or not:
    LlamaIndex's structured streams do not ask.

    Raises:
        InvalidInput: ``choice`` names none of the tools.
    """
    if choice is None and specs and (required or any(map(_is_form, tools))):
        return "required"
    return parse_tool_choice(choice, specs)


def selections(response: ChatResponse, *, error_on_no_tool_call: bool) -> list[ToolSelection]:
    """The calls in a response. Of one that is still being streamed, with the arguments as far as they go.

    Raises:
        MissingToolCall: There is none, and that is an error.
    """
    blocks = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
    if not blocks and error_on_no_tool_call:
        cut = response.message.additional_kwargs.get("invalid_tool_calls")
        text = response.message.content or ""
        raise MissingToolCall(
            f"the call of {cut[0]['name']!r} was cut short: {cut[0]['error']}; raise max_tokens"
            if cut
            else f"the model was to call a tool and wrote {text[:200]!r} instead; pass tool_required=True"
        )
    return [
        ToolSelection(tool_id=b.tool_call_id or "", tool_name=b.tool_name, tool_kwargs=_arguments(b.tool_kwargs))
        for b in blocks
    ]


def _arguments(kwargs: Mapping[str, Any] | str) -> dict[str, Any]:
    if not isinstance(kwargs, str):
        return dict(kwargs)
    try:
        parsed = from_json(kwargs, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _is_form(tool: BaseTool) -> bool:
    """Whether LlamaIndex made the tool from the class of a structured answer."""
    return isinstance(tool, FunctionTool) and tool.real_fn.__qualname__.startswith(_FORM_MAKER)
