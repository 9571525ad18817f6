"""Completions and their pieces as LangChain messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from hypic_agents.completion import Completion, StreamChunk
from hypic_agents.integrations.langchain.usage import PROVIDER, response_metadata, usage_metadata


def to_result(completion: Completion, model_name: str) -> ChatResult:
    message = AIMessage(
        content=completion.text,
        additional_kwargs=_reasoning(completion.reasoning),
        tool_calls=[tool_call(name=c.name, args=dict(c.arguments), id=c.id) for c in completion.tool_calls],
        invalid_tool_calls=[
            invalid_tool_call(name=c.name, args=c.arguments, id=c.id, error=c.error)
            for c in completion.invalid_tool_calls
        ],
        usage_metadata=usage_metadata(completion),
        response_metadata={"model_provider": PROVIDER, **response_metadata(completion, model_name)},
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def to_chunks(chunk: StreamChunk, model_name: str) -> Iterator[ChatGenerationChunk]:
    """One piece as chunks; none where there is nothing to show.

    Usage and metadata come alone, in the last chunk: LangChain adds up what several chunks carry, and joins
    their strings.
    """
    if chunk.text or chunk.reasoning or chunk.tool_calls:
        message = AIMessageChunk(
            content=chunk.text,
            additional_kwargs=_reasoning(chunk.reasoning),
            tool_call_chunks=[
                tool_call_chunk(name=c.name or None, args=c.arguments, id=c.id or None, index=c.index)
                for c in chunk.tool_calls
            ],
            response_metadata={"model_provider": PROVIDER},
        )
        yield ChatGenerationChunk(message=message)
    if chunk.completion is not None:
        message = AIMessageChunk(
            content="",
            usage_metadata=usage_metadata(chunk.completion),
            response_metadata={"model_provider": PROVIDER, **response_metadata(chunk.completion, model_name)},
            chunk_position="last",
        )
        yield ChatGenerationChunk(message=message)


def _reasoning(text: str) -> dict[str, Any]:
    return {"reasoning_content": text} if text else {}
