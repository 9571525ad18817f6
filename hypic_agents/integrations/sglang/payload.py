"""The one place that writes what servers are sent.

Sources: ``python/sglang/srt/entrypoints/openai/protocol.py`` and ``python/sglang/srt/managers/io_struct.py`` of SGLang
0.5.23 (github.com/sgl-project/sglang), its pages "Native APIs" and "Sampling Parameters" (docs.sglang.io), and the
README of the HYPIC build (github.com/redai-infra/HYPIC).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypic_agents.backend import ChatRequest, grammar_of
from hypic_agents.core import Grammar, SamplingParams

CHAT: Final = "/v1/chat/completions"
GENERATE: Final = "/generate"
ABORT: Final = "/abort_request"

WARM_TAIL: Final = "\n"
"""Behind a segment that is warmed: the HYPIC build never caches the last part of a prompt."""

# SGLang falls back on the model's generation config for what a request leaves open; our parameters mean what they say.
_NEUTRAL: Final[dict[str, Any]] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What an answer is held to, and how it is read.

    Attributes:
        tools: Specs shown to the model.
        forced: The answer must be calls.
        schema: JSON schema of the whole answer, as text; None for a free one.
        regex: The whole answer matches it.
        json_calls: Calls may come as a JSON array of ``{"name", "parameters"}``, SGLang's own form of forced calls.
    """

    tools: tuple[Mapping[str, Any], ...] = ()
    forced: bool = False
    schema: str | None = None
    regex: str | None = None
    json_calls: bool = False


def answer_form(request: ChatRequest, *, server_forces_calls: bool) -> AnswerForm:
    """The form of a request's answer.

    Args:
        request: The request.
        server_forces_calls: The server enforces ``tool_choice`` itself; else a schema does.

    Raises:
        InvalidInput: An unknown ``response_format``.
    """
    grammar = grammar_of(request) or request.sampling.grammar
    tools = tuple(request.shown_tools)
    if grammar is None:
        return AnswerForm(tools)
    if grammar.kind == "tool_calls":
        return _calling(grammar, tools, server_forces_calls)
    if grammar.kind == "regex":
        return AnswerForm(tools, regex=grammar.spec)
    return AnswerForm(tools, schema=grammar.spec or '{"type":"object"}')


def chat_payload(
    request: ChatRequest,
    form: AnswerForm,
    *,
    model: str,
    rid: str,
    messages: Sequence[Mapping[str, Any]],
    input_ids: Sequence[int] | None,
    max_tokens: int,
    cache_salt: str | None,
    stream: bool,
) -> dict[str, Any]:
    """A body for a stock server's chat endpoint.

    With ``input_ids`` the server tokenises nothing; the messages then only tell it about tools and stops.
    """
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "rid": rid,
        "messages": [_sent(message) for message in messages],
        "max_completion_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        **_NEUTRAL,
        "stream": stream,
        "return_token_ids": True,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    if input_ids is not None:
        body["input_ids"] = list(input_ids)
    if cache_salt is not None:
        body["cache_salt"] = cache_salt
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if form.regex is not None:
        body["regex"] = form.regex
    if form.schema is not None:
        schema = {"name": "answer", "schema": json.loads(form.schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if form.tools:
        body["tools"] = [_tool(tool) for tool in form.tools]
        body["tool_choice"] = _choice(request.tool_choice) if form.forced and form.schema is None else "auto"
        body["parallel_tool_calls"] = request.parallel_tool_calls
    return body


def generate_payload(
    form: AnswerForm, sampling: SamplingParams, *, rid: str, text: str, max_tokens: int, stream: bool
) -> dict[str, Any]:
    """A body for ``/generate`` of a HYPIC build."""
    params: dict[str, Any] = {
        "max_new_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        **_NEUTRAL,
    }
    if sampling.stop:
        params["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        params["sampling_seed"] = sampling.seed
    if form.regex is not None:
        params["regex"] = form.regex
    if form.schema is not None:
        params["json_schema"] = form.schema
    # <tool_call> is a special token of some vocabularies; without it calls could not be read.
    params["skip_special_tokens"] = not form.tools
    return {"rid": rid, "text": text, "sampling_params": params, "stream": stream}


def warm_payload(part: str, separator: str, *, rid: str) -> dict[str, Any]:
    """A body that makes a HYPIC build cache one part."""
    params = {"max_new_tokens": 1, "temperature": 0.0}
    return {"rid": rid, "text": f"{part}{separator}{WARM_TAIL}", "sampling_params": params, "stream": False}


def abort_payload(rid: str) -> dict[str, Any]:
    """A body for ``/abort_request``: this request, no other."""
    return {"rid": rid, "abort_all": False}


def _calling(grammar: Grammar, tools: tuple[Mapping[str, Any], ...], server_forces_calls: bool) -> AnswerForm:
    spec = json.loads(grammar.spec)
    if spec["choice"] == "auto":
        if "answer" not in spec:
            return AnswerForm(tools)
        either = {"anyOf": [spec["answer"], _calls_schema(spec)]}
        return AnswerForm(tools, schema=json.dumps(either, ensure_ascii=False), json_calls=True)
    if server_forces_calls:
        return AnswerForm(tools, forced=True, json_calls=True)
    schema = json.dumps(_calls_schema(spec), ensure_ascii=False)
    return AnswerForm(tools, forced=True, schema=schema, json_calls=True)


def _calls_schema(spec: Mapping[str, Any]) -> dict[str, Any]:
    named = {tool.get("function", tool)["name"]: tool.get("function", tool) for tool in spec["tools"]}
    allowed = [named[spec["choice"]]] if spec["choice"] in named else list(named.values())
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "enum": [function["name"]]},
                "parameters": function.get("parameters") or {"type": "object"},
            },
            "required": ["name", "parameters"],
        }
        for function in allowed
    ]
    items = calls[0] if len(calls) == 1 else {"anyOf": calls}
    schema: dict[str, Any] = {"type": "array", "minItems": 1, "items": items}
    return schema if spec["parallel"] else {**schema, "maxItems": 1}


def _choice(choice: str) -> Any:
    return choice if choice == "required" else {"type": "function", "function": {"name": choice}}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": dict(tool.get("function", tool))}


def _sent(message: Mapping[str, Any]) -> dict[str, Any]:
    """A normalised message with its arguments as JSON text, which is what OpenAI's shape wants."""
    if not message.get("tool_calls"):
        return dict(message)
    calls = []
    for call in message["tool_calls"]:
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        calls.append({**call, "function": {**call["function"], "arguments": text}})
    return {**message, "tool_calls": calls}
