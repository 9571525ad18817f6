"""From a model's fields and a call's keyword arguments to a backend request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hypic_agents.backend import Backend, ChatRequest
from hypic_agents.core import SamplingParams, Segment
from hypic_agents.errors import InvalidInput
from hypic_agents.integrations.langchain.tools import tool_specs
from hypic_agents.integrations.tool_choice import parse_tool_choice

if TYPE_CHECKING:
    from hypic_agents.integrations.langchain.chat_model import ChatHypic

DEFAULT_MAX_TOKENS: Final = 1024

_SAMPLING: Final = ("temperature", "top_p", "max_tokens", "seed")
_OTHERS: Final = ("tools", "tool_choice", "parallel_tool_calls", "response_format", "timeout", "policy", "model")
# What LangChain and its middleware send to any model, and what means nothing to a local one.
_IGNORED: Final = frozenset(
    {"strict", "stream", "stream_usage", "cache_control", "ls_structured_output_format", "metadata", "user", "store"}
    | {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "service_tier"}
)


@dataclass(frozen=True, slots=True)
class Call:
    """What to ask of whom, and the name the answer gives its model."""

    backend: Backend
    request: ChatRequest
    model_name: str


def make_request(
    model: ChatHypic,
    sent: Sequence[Mapping[str, Any]],
    segments: Sequence[Segment],
    stop: Sequence[str] | None,
    given: Mapping[str, Any],
) -> ChatRequest:
    """A request. What the call gives comes before what the model was made with.

    Raises:
        InvalidInput: An unknown option, or a value out of range.
    """
    unknown = sorted(set(given) - set(_SAMPLING) - set(_OTHERS) - _IGNORED)
    if unknown:
        known = ", ".join(sorted([*_SAMPLING, *_OTHERS, "stop"]))
        raise InvalidInput(f"unknown option {unknown[0]}={given[unknown[0]]!r}; the options of a call are {known}")
    values = {name: given.get(name, getattr(model, name)) for name in (*_SAMPLING, "timeout", "policy")}
    specs = tool_specs(given.get("tools") or ())
    parallel = given.get("parallel_tool_calls")
    return ChatRequest(
        messages=sent,
        tools=specs,
        tool_choice=parse_tool_choice(given.get("tool_choice"), specs),
        parallel_tool_calls=parallel is not False,
        response_format=given.get("response_format"),
        segments=segments,
        sampling=SamplingParams(
            max_tokens=DEFAULT_MAX_TOKENS if values["max_tokens"] is None else values["max_tokens"],
            temperature=values["temperature"] or 0.0,
            top_p=1.0 if values["top_p"] is None else values["top_p"],
            stop=tuple(stop if stop is not None else model.stop or ()),
            seed=values["seed"],
        ),
        fit_window=values["max_tokens"] is None,
        policy=values["policy"],
        scope=model.scope,
        timeout_s=values["timeout"],
        max_retries=model.max_retries or 0,
    )
