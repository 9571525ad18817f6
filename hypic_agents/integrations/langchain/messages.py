"""LangChain messages as the backend's, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, ToolMessage

from hypic_agents.errors import InvalidMessages

# They repeat what the message lists as its tool calls.
CALL_BLOCKS = frozenset({"tool_call", "tool_call_chunk", "invalid_tool_call", "tool_use", "function_call"})

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}


def to_backend(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """The messages as dicts. Order, roles and texts stay; the prompt builder merges what a template cannot take.

    Raises:
        InvalidMessages: A message that no chat model is sent, such as a ``RemoveMessage``.
    """
    return [_message(message, index) for index, message in enumerate(messages)]


def _message(message: BaseMessage, index: int) -> dict[str, Any]:
    if isinstance(message, ChatMessage):
        return {"role": message.role, "content": _content(message)}
    role = _ROLES.get(message.type.removesuffix("MessageChunk").lower())
    if role is None:
        raise InvalidMessages(f"message {index} is a {type(message).__name__}, which no model is sent; take it out")
    turn: dict[str, Any] = {"role": role, "content": _content(message)}
    if message.name:
        turn["name"] = message.name
    if isinstance(message, ToolMessage):
        turn["tool_call_id"] = message.tool_call_id
    if isinstance(message, AIMessage):
        turn |= _of_assistant(message)
    return turn


def _of_assistant(message: AIMessage) -> dict[str, Any]:
    more: dict[str, Any] = {}
    calls = [_call(call["id"], call["name"], call["args"]) for call in message.tool_calls]
    # What the model wrote stays in its trace, valid or not: the tool's error message answers it.
    calls += [_call(c["id"], c["name"], c["args"] or "") for c in message.invalid_tool_calls if c["name"]]
    if calls:
        more["tool_calls"] = calls
    if reasoning := message.additional_kwargs.get("reasoning_content"):
        more["reasoning_content"] = reasoning
    return more


def _call(call_id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _content(message: BaseMessage) -> str | list[Any]:
    content: str | list[Any] = message.content
    if isinstance(content, str):
        return content
    if isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
        content = [b for b in content if not (isinstance(b, Mapping) and b.get("type") in CALL_BLOCKS)]
    texts = [document_text(block) for block in content]
    return [
        block if text is None else {"type": "text", "text": text} for block, text in zip(content, texts, strict=True)
    ]


def document_text(block: Any) -> str | None:
    """The text of a block that holds a plain-text document: LangChain's "text-plain" or Anthropic's "document"."""
    if not isinstance(block, Mapping):
        return None
    text: Any = None
    if block.get("type") == "text-plain":
        text = block.get("text")
    elif block.get("type") == "document" and isinstance(block.get("source"), Mapping):
        text = block["source"].get("data") if block["source"].get("type") == "text" else None
    return text if isinstance(text, str) else None
