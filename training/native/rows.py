"""Training and evaluation data: one JSON object a line, checked, with the line number in every complaint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

from hypic_agents.core import Segment, SegmentKind
from hypic_agents.errors import InvalidInput
from hypic_agents.prompt.tool_calls import parse_tool_calls

_KINDS = get_args(SegmentKind)
_SHARED = ("tools", "documents", "segments", "answer")
_CHAT = ("messages", *_SHARED)
_ASKED = ("system", "question", *_SHARED)
_SEGMENT = ("text", "kind", "source_id", "version")
_ASSISTANT = ("assistant", "ai")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of data.

    Attributes:
        where: File and line, for messages.
        messages: The chat up to the answer.
        tools: OpenAI function specs.
        segments: Texts that stand in the messages and are reused where they do.
        answer: The assistant message that follows, or None.
    """

    where: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    segments: tuple[Segment, ...]
    answer: Mapping[str, Any] | None


def read_rows(path: Path) -> list[Row]:
    """All rows of a JSONL file; blank lines are skipped.

    A line holds ``{"messages", "tools"?, "segments"?, "documents"?, "answer"?}``, where segments (or documents) are
    texts that stand in the messages word for word, or ``{"system"?, "tools"?, "documents"?, "question", "answer"?}``,
    where documents and question are joined by blank lines into the user's message. A segment is a text or ``{"text",
    "kind"?, "source_id"?, "version"?}``; an answer a text or an assistant message. Messages that end with the
    assistant's own give the answer themselves. Every file that ``hypic-agents calibrate`` takes is one of these.

    Raises:
        InvalidInput: a file that cannot be read or holds no row, or a line that is no such object.
    """
    try:
        # JSON texts may hold other characters that str.splitlines cuts at.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {path}: {error}") from error
    rows = [_row(line, f"{path} line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise InvalidInput(f"{path} holds no row; write one JSON object a line")
    return rows


def digest(path: Path) -> str:
    """Names the content of a data file."""
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _row(line: str, where: str) -> Row:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{where}: not JSON ({error})") from error
    if not isinstance(data, dict):
        raise InvalidInput(f"{where}: a row is a JSON object, not {type(data).__name__}")
    if ("messages" in data) == ("question" in data):
        raise InvalidInput(f"{where}: give either 'messages' or 'question'; the keys are {', '.join(data) or 'none'}")
    _refuse_unknown(data, _CHAT if "messages" in data else _ASKED, where)
    tools = tuple(_list(data, "tools", where, dict))
    segments = tuple(
        _segment(item, f"{where}, {key} {number}")
        for key in ("segments", "documents")
        for number, item in enumerate(_list(data, key, where, (str, dict)), 1)
    )
    answer = _answer(data.get("answer"), tools, where)
    if "question" in data:
        messages = _asked(data, segments, where)
    else:
        messages = _list(data, "messages", where, dict)
        if answer is None and messages and messages[-1].get("role") in _ASSISTANT:
            answer = messages.pop()
        if not messages:
            raise InvalidInput(f"{where}: no message stands before the answer")
    return Row(where, tuple(messages), tools, segments, answer)


def _asked(data: Mapping[str, Any], segments: tuple[Segment, ...], where: str) -> list[dict[str, Any]]:
    """The messages of a row that is given as system, documents and question."""
    question, system = data["question"], data.get("system")
    if not isinstance(question, str) or not question.strip():
        raise InvalidInput(f"{where}: 'question' must be a text that is not blank")
    if system is not None and not isinstance(system, str):
        raise InvalidInput(f"{where}: 'system' must be a text, not {type(system).__name__}")
    body = "\n\n".join((*(segment.text for segment in segments), question))
    head = [{"role": "system", "content": system}] if system and system.strip() else []
    return [*head, {"role": "user", "content": body}]


def _refuse_unknown(data: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise InvalidInput(f"{where}: {unknown[0]!r} is not known here; the keys are {', '.join(known)}")


def _list(data: Mapping[str, Any], key: str, where: str, kinds: type | tuple[type, ...]) -> list[Any]:
    values = data.get(key)
    if values is None:
        return []
    if not isinstance(values, list):
        raise InvalidInput(f"{where}: '{key}' must be a list, not {type(values).__name__}")
    for number, value in enumerate(values, 1):
        if not isinstance(value, kinds):
            raise InvalidInput(f"{where}: '{key}' {number} cannot be a {type(value).__name__}")
    return list(values)


def _segment(item: str | Mapping[str, Any], where: str) -> Segment:
    data: Mapping[str, Any] = {"text": item} if isinstance(item, str) else item
    _refuse_unknown(data, _SEGMENT, where)
    text = data.get("text")
    kind: Any = data.get("kind") or "document"
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"{where}: 'text' must be a text that is not blank")
    if kind not in _KINDS:
        raise InvalidInput(f"{where}: unknown kind {kind!r}; the kinds are {', '.join(_KINDS)}")
    return Segment(text, kind, str(data.get("source_id") or ""), str(data.get("version") or ""))


def _answer(value: Any, tools: Sequence[Mapping[str, Any]], where: str) -> Mapping[str, Any] | None:
    """The assistant message of an answer. Calls written as text become calls, as templates give them their tokens."""
    if value is None:
        return None
    if isinstance(value, dict):
        if value.get("role", "assistant") not in _ASSISTANT or not (value.get("content") or value.get("tool_calls")):
            raise InvalidInput(f"{where}: an answer is a text or an assistant message with content or tool_calls")
        return {**value, "role": "assistant"}
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{where}: 'answer' must be a text that is not blank; leave it out where there is none")
    calls = [
        {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
        for call in parse_tool_calls(value, tools)
    ]
    if not calls:
        return {"role": "assistant", "content": value}
    return {"role": "assistant", "content": value.partition("<tool_call>")[0].strip(), "tool_calls": calls}
