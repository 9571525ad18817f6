"""Standard content blocks of this provider's messages.

LangChain numbers streamed blocks by type, and those integers collide with the indexes of tool-call chunks: calls then
vanish from ``content_blocks`` under ``output_version="v1"``. Here each block carries an index of its own.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.block_translators import register_translator

from hypic_agents.integrations.langchain.messages import CALL_BLOCKS
from hypic_agents.integrations.langchain.usage import PROVIDER


def translate_content(message: AIMessage) -> list[Any]:
    """Reasoning, text and tool calls, in the order the model wrote them."""
    blocks: list[dict[str, Any]] = [*_written(message)]
    blocks += [{"type": "tool_call", "id": c["id"], "name": c["name"], "args": c["args"]} for c in message.tool_calls]
    blocks += [{**call, "type": "invalid_tool_call"} for call in message.invalid_tool_calls]
    return blocks


def translate_content_chunk(chunk: AIMessageChunk) -> list[Any]:
    """As :func:`translate_content`; calls that are still being written are ``tool_call_chunk`` blocks."""
    if chunk.chunk_position == "last":
        return translate_content(chunk)
    blocks = [{**block, "index": f"lc_{block['type']}_0"} for block in _written(chunk)]
    for call in chunk.tool_call_chunks:
        block = {"type": "tool_call_chunk", "id": call["id"], "name": call["name"], "args": call["args"]}
        blocks.append(block | {"index": f"lc_tc_{call['index']}"})
    return blocks


def _written(message: AIMessage) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reasoning := message.additional_kwargs.get("reasoning_content"):
        blocks.append({"type": "reasoning", "reasoning": reasoning})
    if isinstance(message.content, str):
        blocks += [{"type": "text", "text": message.content}] if message.content else []
    else:
        parts = [part if isinstance(part, dict) else {"type": "text", "text": part} for part in message.content]
        blocks += [part for part in parts if part.get("type") not in CALL_BLOCKS]
    return blocks


register_translator(PROVIDER, translate_content, translate_content_chunk)
