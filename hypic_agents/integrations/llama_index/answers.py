"""Completions and their pieces as LlamaIndex responses.

================================  ==================================================================================
in a finished response            holds
================================  ==================================================================================
``message.blocks``                the reasoning, the text, the tool calls
``message.additional_kwargs``     "tool_calls" in OpenAI's shape; "invalid_tool_calls" that were cut short
``raw``                           "model", "finish_reason", "usage" in OpenAI's shape, and under "hypic" the reuse
                                  report by segment
``additional_kwargs``             the counts of "usage", flat, and the report
================================  ==================================================================================

The responses of a stream are cumulative; the last equals that of the call without a stream, but for its ``delta``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import aclosing, closing
from dataclasses import asdict
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    ContentBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from hypic_agents.calls import ToolCallDelta
from hypic_agents.completion import Completion, StreamChunk
from hypic_agents.integrations.report import reuse_report


def to_chat(completion: Completion, model_name: str) -> ChatResponse:
    """A finished answer."""
    blocks = [
        ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=dict(call.arguments))
        for call in completion.tool_calls
    ]
    message = _message(completion.text, completion.reasoning, blocks)
    if completion.invalid_tool_calls:
        message.additional_kwargs["invalid_tool_calls"] = [asdict(call) for call in completion.invalid_tool_calls]
    usage, report = _usage(completion), reuse_report(completion)
    reason = "tool_calls" if completion.tool_calls and completion.finish_reason == "stop" else completion.finish_reason
    counts = {key: value for key, value in usage.items() if isinstance(value, int)}
    return ChatResponse(
        message=message,
        raw={"model": model_name, "finish_reason": reason, "usage": usage, "hypic": report},
        additional_kwargs={**counts, **usage["prompt_tokens_details"], "hypic": report},
    )


def to_completion(response: ChatResponse) -> CompletionResponse:
    """The text of an answer to a plain prompt."""
    return CompletionResponse(
        text=response.message.content or "",
        additional_kwargs=response.additional_kwargs,
        raw=response.raw,
        delta=response.delta,
    )


def to_stream(chunks: Generator[StreamChunk, None, None], model_name: str) -> ChatResponseGen:
    """Responses as the answer grows. Closing the generator cancels the request."""
    draft = _Draft(model_name)
    with closing(chunks):
        for chunk in chunks:
            yield draft.add(chunk)


async def to_async_stream(chunks: AsyncGenerator[StreamChunk, None], model_name: str) -> ChatResponseAsyncGen:
    """As :func:`to_stream`, for ``async for``."""
    draft = _Draft(model_name)
    async with aclosing(chunks):
        async for chunk in chunks:
            yield draft.add(chunk)


def to_completions(responses: ChatResponseGen) -> CompletionResponseGen:
    """The stream of a plain prompt."""
    with closing(responses):
        for response in responses:
            yield to_completion(response)


async def to_async_completions(responses: ChatResponseAsyncGen) -> CompletionResponseAsyncGen:
    """As :func:`to_completions`, for ``async for``."""
    async with aclosing(responses):
        async for response in responses:
            yield to_completion(response)


class _Draft:
    """The answer so far."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._text = self._reasoning = ""
        self._calls: dict[int, ToolCallDelta] = {}

    def add(self, chunk: StreamChunk) -> ChatResponse:
        """Take a piece; the response up to it."""
        self._text += chunk.text
        self._reasoning += chunk.reasoning
        for delta in chunk.tool_calls:
            known = self._calls.get(delta.index, ToolCallDelta(delta.index))
            self._calls[delta.index] = ToolCallDelta(
                delta.index, known.arguments + delta.arguments, known.name or delta.name, known.id or delta.id
            )
        if chunk.completion is not None:
            response = to_chat(chunk.completion, self._model_name)
        else:
            blocks = [
                ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=call.arguments)
                for call in self._calls.values()
            ]
            response = ChatResponse(message=_message(self._text, self._reasoning, blocks))
        response.delta = chunk.text
        if chunk.reasoning:
            response.additional_kwargs["thinking_delta"] = chunk.reasoning
        return response


def _message(text: str, reasoning: str, calls: Iterable[ToolCallBlock]) -> ChatMessage:
    calls = list(calls)
    blocks: list[ContentBlock] = [ThinkingBlock(content=reasoning)] if reasoning else []
    blocks += [TextBlock(text=text)] if text or not calls else []
    return ChatMessage(
        role=MessageRole.ASSISTANT,
        blocks=[*blocks, *calls],
        # Structured streams look for the calls here.
        additional_kwargs={"tool_calls": [_openai_call(call) for call in calls]} if calls else {},
    )


def _openai_call(call: ToolCallBlock) -> dict[str, Any]:
    kwargs = call.tool_kwargs
    arguments = kwargs if isinstance(kwargs, str) else json.dumps(kwargs, ensure_ascii=False)
    return {"id": call.tool_call_id, "type": "function", "function": {"name": call.tool_name, "arguments": arguments}}


def _usage(completion: Completion) -> dict[str, Any]:
    """Counts in tokens; those of the prompt include the cached ones."""
    usage = completion.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "created_tokens": usage.created_tokens},
    }
