"""From a model's fields and a call's keyword arguments to a backend request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hypic_agents.backend import ChatRequest
from hypic_agents.core import SamplingParams, Segment
from hypic_agents.errors import InvalidInput
from hypic_agents.integrations.llama_index.tools import tool_specs
from hypic_agents.integrations.tool_choice import parse_tool_choice

if TYPE_CHECKING:
    from hypic_agents.integrations.llama_index.llm import HypicLLM

DEFAULT_MAX_TOKENS: Final = 1024

_FIELDS: Final = ("temperature", "top_p", "max_tokens", "stop", "seed", "timeout", "policy")
_OTHERS: Final = ("tools", "tool_choice", "parallel_tool_calls", "response_format")
# What LlamaIndex's programs pass to any model, and what means nothing to a local one.
_IGNORED: Final = frozenset({"strict", "user", "metadata"})


def make_request(
    model: HypicLLM, sent: Sequence[Mapping[str, Any]], segments: Sequence[Segment], given: Mapping[str, Any]
) -> ChatRequest:
    """A request. What the call gives comes before what the model was made with.

    Raises:
        InvalidInput: An unknown option, or a value out of range.
    """
    unknown = sorted(set(given) - set(_FIELDS) - set(_OTHERS) - _IGNORED)
    if unknown:
        known = ", ".join(sorted([*_FIELDS, *_OTHERS]))
        raise InvalidInput(f"unknown option {unknown[0]}={given[unknown[0]]!r}; the options of a call are {known}")
    values = {name: given.get(name, getattr(model, name)) for name in _FIELDS}
    specs = tool_specs(given.get("tools") or ())
    return ChatRequest(
        messages=sent,
        tools=specs,
        tool_choice=parse_tool_choice(given.get("tool_choice"), specs),
        parallel_tool_calls=given.get("parallel_tool_calls") is not False,
        response_format=given.get("response_format"),
        segments=segments,
        sampling=SamplingParams(
            max_tokens=DEFAULT_MAX_TOKENS if values["max_tokens"] is None else values["max_tokens"],
            temperature=values["temperature"] or 0.0,
            top_p=1.0 if values["top_p"] is None else values["top_p"],
            stop=tuple(values["stop"] or ()),
            seed=values["seed"],
        ),
        fit_window=values["max_tokens"] is None,
        policy=values["policy"],
        scope=model.scope,
        timeout_s=values["timeout"],
        max_retries=model.max_retries,
    )
