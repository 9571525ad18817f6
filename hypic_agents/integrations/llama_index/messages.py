"""LlamaIndex messages as the backend's, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from hypic_agents.core import Scope, Segment

_ROLES: Final = {
    MessageRole.SYSTEM: "system",
    MessageRole.DEVELOPER: "system",
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
    MessageRole.TOOL: "tool",
    MessageRole.FUNCTION: "tool",
}
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml")
# Where to cut, and what was quoted: neither is text of the conversation.
_SILENT: Final = (CachePoint, CitationBlock)


def to_backend(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The messages as dicts; the given ones stay as they are.

    Text blocks of a message are joined by line breaks, as in ``ChatMessage.content``. Images and other blocks that a
    text model cannot read are handed on, for the prompt builder to refuse by name.
    """
    return [_message(message) for message in messages]


def declared_segments(messages: Sequence[ChatMessage], scope: Scope) -> Iterator[Segment]:
    """Documents among the blocks, and texts that stand before a cache point of their message."""
    for message in messages:
        points = [i for i, block in enumerate(message.blocks) if isinstance(block, CachePoint)]
        for i, block in enumerate(message.blocks):
            if isinstance(block, DocumentBlock | CitableBlock):
                text = _text(block)
                source = block.source if isinstance(block, CitableBlock) else block.title
                if text:
                    yield Segment(text, "document", source or "", scope=scope)
            elif isinstance(block, TextBlock) and points and i < points[-1] and message.role != MessageRole.SYSTEM:
                yield Segment(block.text, "document", scope=scope)


def _message(message: ChatMessage) -> dict[str, Any]:
    role = _ROLES[message.role]
    is_assistant = role == "assistant"
    blocks = [block for block in message.blocks if not isinstance(block, _SILENT)]
    spoken = [b for b in blocks if not (is_assistant and isinstance(b, ThinkingBlock | ToolCallBlock))]
    turn: dict[str, Any] = {"role": role, "content": _content(spoken)}
    if is_assistant:
        calls = [_call(block) for block in blocks if isinstance(block, ToolCallBlock)] or _older_calls(message)
        reasoning = "".join(block.content or "" for block in blocks if isinstance(block, ThinkingBlock))
        turn |= ({"tool_calls": calls} if calls else {}) | ({"reasoning_content": reasoning} if reasoning else {})
    for name in ("name", "tool_call_id") if role == "tool" else ("name",):
        if message.additional_kwargs.get(name):
            turn[name] = message.additional_kwargs[name]
    return turn


def _content(blocks: Sequence[Any]) -> str | list[dict[str, Any]]:
    texts = [_text(block) for block in blocks]
    if all(text is not None for text in texts):
        return "\n".join(text for text in texts if text is not None)
    return [
        {"type": block.block_type} if text is None else {"type": "text", "text": text}
        for block, text in zip(blocks, texts, strict=True)
    ]


def _text(block: Any) -> str | None:
    """The text of a block; None if it is no text."""
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, CitableBlock):
        texts = [_text(part) for part in block.content]
        return None if None in texts else "\n".join(text for text in texts if text)
    if isinstance(block, DocumentBlock) and (block.document_mimetype or "text/plain").startswith(_TEXT_TYPES):
        try:
            content: bytes = block.resolve_document().read()
            return content.decode()
        except (ValueError, OSError):
            return None
    return None


def _call(block: ToolCallBlock) -> dict[str, Any]:
    function = {"name": block.tool_name, "arguments": block.tool_kwargs}
    return {"id": block.tool_call_id, "type": "function", "function": function}


def _older_calls(message: ChatMessage) -> list[Any]:
    """Calls of messages from before there were blocks for them: dicts, or objects of a client's library."""
    calls = message.additional_kwargs.get("tool_calls") or ()
    return [call if isinstance(call, Mapping) else call.model_dump() for call in calls]
