"""Message hygiene: any chat the frameworks send becomes one that strict chat templates accept.

========================================  ==============================================================================
found                                     becomes
========================================  ==============================================================================
role developer, human, ai, function       system, user, assistant, tool
any other role                            ``InvalidMessages``
content ``None`` or absent                ``""``
content as a list of text blocks          the texts concatenated; blank blocks before the first and after the last block
                                          with text are dropped, those between are kept because they separate words
reasoning block of an assistant message   its text in ``reasoning_content``, where templates look for it
tool-call block of an assistant message   dropped, if the message also lists ``tool_calls``; else ``InvalidMessages``
any other block (image, audio, file, ...) ``InvalidMessages`` that names the block type and the message's index
several system messages at the front      one, joined by a blank line
a system message later on                 a user message where it stands (a request's prefix stays what it was)
neighbouring user or assistant messages   one, joined by a blank line; tool calls are concatenated
tool results after an assistant's calls   in call order, before anything else that came between them
tool calls, OpenAI or LangChain shape     OpenAI's; ``arguments`` a dict when the JSON text parses to one
text with lone surrogates                 ``InvalidMessages``, as it has no UTF-8 form
========================================  ==============================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypic_agents.core import SegmentKind
from hypic_agents.errors import InvalidMessages

SEPARATOR = "\n\n"
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXT_BLOCKS = frozenset({"text", "input_text", "output_text"})
_REASONING_BLOCKS = frozenset({"reasoning", "thinking"})
_CALL_BLOCKS = frozenset({"tool_call", "tool_call_chunk", "tool_use", "function_call"})


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages a template accepts, and the texts they were made of.

    Attributes:
        messages: Normalised messages, in the order of the prompt.
        system_parts: Texts that make up the system message.
        turn_parts: Kind and text of the other messages' texts, except the last text of the last user message: the
            query. What an assistant says along with calls, and their results, are "trace"; all else is "turn".
    """

    messages: tuple[dict[str, Any], ...]
    system_parts: tuple[str, ...]
    turn_parts: tuple[tuple[SegmentKind, str], ...]


@dataclass(frozen=True, slots=True)
class _Draft:
    role: str
    content: str
    parts: tuple[str, ...]
    extra: dict[str, Any]


def normalise(messages: Sequence[Mapping[str, Any]], *, first_index: int = 0) -> Conversation:
    """Apply the module's table. ``first_index`` is the number that error messages give the first message.

    Raises:
        InvalidMessages: As the table says.
    """
    drafts = _merged(_demoted(_results_in_call_order([_draft(m, i) for i, m in enumerate(messages, first_index)])))
    parts = [(draft, part) for draft in drafts for part in draft.parts]
    query = max((i for i, (draft, _) in enumerate(parts) if draft.role == "user"), default=-1)
    return Conversation(
        messages=tuple({"role": d.role, "content": d.content, **d.extra} for d in drafts),
        system_parts=tuple(text for draft, text in parts if draft.role == "system"),
        turn_parts=tuple((_kind(d), text) for i, (d, text) in enumerate(parts) if d.role != "system" and i != query),
    )


def _kind(draft: _Draft) -> SegmentKind:
    return "trace" if draft.role == "tool" else "turn"


def _draft(message: Mapping[str, Any], index: int) -> _Draft:
    if not isinstance(message, Mapping):
        raise InvalidMessages(f"message {index} must be a mapping with role and content, not {type(message).__name__}")
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise InvalidMessages(
            f"message {index} has the unknown role {message.get('role')!r}; known: {', '.join(_ROLES)}"
        )
    calls = message.get("tool_calls") or ()
    extra = {k: v for k, v in message.items() if k not in {"role", "content", "tool_calls"} and v is not None}
    texts, reasoning = _texts(message.get("content"), index, role, has_calls=bool(calls))
    if reasoning:
        extra.setdefault("reasoning_content", reasoning)
    if calls:
        extra["tool_calls"] = [_tool_call(call, index) for call in calls]
    content = "".join(texts)
    try:
        content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidMessages(f"message {index} holds a lone surrogate at character {error.start}") from error
    return _Draft(role, content, tuple(texts), extra)


def _texts(content: Any, index: int, role: str, *, has_calls: bool) -> tuple[list[str], str]:
    """The text blocks of a content, and the reasoning in it."""
    if content is None:
        return [""], ""
    if isinstance(content, str):
        return [content], ""
    if not isinstance(content, list | tuple):
        raise InvalidMessages(
            f"message {index}: content must be text or a list of blocks, not {type(content).__name__}"
        )
    texts: list[str] = []
    reasoning: list[str] = []
    for block in content:
        kind = "text" if isinstance(block, str) else block.get("type") if isinstance(block, Mapping) else None
        if kind in _TEXT_BLOCKS:
            texts.append(block if isinstance(block, str) else str(block.get("text") or ""))
        elif kind in _REASONING_BLOCKS and role == "assistant":
            reasoning.append(str(block.get(kind) or ""))
        elif not (kind in _CALL_BLOCKS and role == "assistant" and has_calls):
            name = kind if isinstance(kind, str) else type(block).__name__
            raise InvalidMessages(
                f"message {index} ({role}) holds a block of type {name!r}, but the model reads text only; remove the "
                "block or describe it in text"
            )
    filled = [i for i, text in enumerate(texts) if text.strip()]
    return (texts[filled[0] : filled[-1] + 1] if filled else ["".join(texts)]), "".join(reasoning)


def _tool_call(call: Any, index: int) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not function.get("name"):
        raise InvalidMessages(f"message {index} holds a tool call without a name: {str(call)[:200]}")
    arguments = function.get("arguments", function.get("args"))
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments or "{}")
        except json.JSONDecodeError:
            parsed = None
        arguments = parsed if isinstance(parsed, dict) else arguments
    identity = {"id": call["id"]} if call.get("id") else {}
    return {**identity, "type": "function", "function": {"name": function["name"], "arguments": arguments or {}}}


def _results_in_call_order(drafts: list[_Draft]) -> list[_Draft]:
    """Tool results right behind the calls they answer; results of unknown calls after them, as they came."""
    ordered: list[_Draft] = []
    rest = list(drafts)
    while rest:
        draft = rest.pop(0)
        ordered.append(draft)
        rank = {call.get("id"): i for i, call in enumerate(draft.extra.get("tool_calls", ())) if call.get("id")}
        if not rank:
            continue
        until = next((i for i, later in enumerate(rest) if later.role == "assistant"), len(rest))
        results = [later for later in rest[:until] if later.role == "tool"]
        others = [later for later in rest[:until] if later.role != "tool"]
        rest[:until] = others
        ordered += sorted(results, key=lambda result: rank.get(result.extra.get("tool_call_id"), len(rank)))
    return ordered


def _demoted(drafts: list[_Draft]) -> list[_Draft]:
    first = next((i for i, draft in enumerate(drafts) if draft.role != "system"), len(drafts))
    late = (replace(draft, role="user") if draft.role == "system" else draft for draft in drafts[first:])
    return [*drafts[:first], *late]


def _merged(drafts: list[_Draft]) -> list[_Draft]:
    merged: list[_Draft] = []
    for draft in drafts:
        if merged and merged[-1].role == draft.role != "tool":
            merged[-1] = _joined(merged[-1], draft)
        else:
            merged.append(draft)
    return merged


def _joined(first: _Draft, second: _Draft) -> _Draft:
    content = SEPARATOR.join(text for text in (first.content, second.content) if text)
    extra = {**first.extra, **second.extra}
    if "tool_calls" in first.extra and "tool_calls" in second.extra:
        extra["tool_calls"] = [*first.extra["tool_calls"], *second.extra["tool_calls"]]
    if "reasoning_content" in first.extra and "reasoning_content" in second.extra:
        extra["reasoning_content"] = SEPARATOR.join(
            (first.extra["reasoning_content"], second.extra["reasoning_content"])
        )
    return _Draft(first.role, content, first.parts + second.parts, extra)
