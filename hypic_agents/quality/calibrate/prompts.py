"""A file of prompts, one JSON object a line. No torch: bad lines are found before a model is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast, get_args

from hypic_agents.core import Segment, SegmentKind
from hypic_agents.errors import InvalidPrompts

_KINDS: Final = get_args(SegmentKind)
_CHAT: Final = frozenset({"messages", "tools", "documents", "segments", "answer"})
_PLAIN: Final = frozenset({"system", "tools", "documents", "segments", "question", "answer"})
_PART: Final = frozenset({"text", "kind", "source_id", "version"})
_FORMS: Final = '{"messages": [...], "documents": [...]} or {"system": "...", "documents": [...], "question": "..."}'


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """One line of the file.

    Attributes:
        line: Its number, from 1.
        messages: The chat; empty where the line has a question of its own.
        question: The question; of a chat, its last user text, less the documents in front of it.
        documents: In a chat, texts that stand in its messages verbatim; else the documents in front of the question.
        answer: The right answer; None where the line gives none.
    """

    line: int
    question: str
    messages: tuple[Mapping[str, Any], ...] = ()
    system: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    documents: tuple[Segment, ...] = ()
    answer: str | None = None


def read_prompts(path: Path) -> tuple[PromptRecord, ...]:
    """All prompts of a file; blank lines are skipped.

    Raises:
        InvalidPrompts: the file cannot be read, holds no prompt, or a line is at fault; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InvalidPrompts(f"no file {path}; check the path, or write one with --sample 20") from error
    except UnicodeDecodeError as error:
        raise InvalidPrompts(f"{path} is not UTF-8 text; convert it first") from error
    except OSError as error:
        raise InvalidPrompts(f"cannot read {path}: {error.strerror or error}") from error
    records = []
    # Only line feeds end a line: JSON texts may hold the other characters that str.splitlines cuts at.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                records.append(_record(line, number))
            except InvalidPrompts as error:
                raise InvalidPrompts(f"{path}, line {number}: {error}") from error.__cause__
    if not records:
        raise InvalidPrompts(f"{path} holds no prompt; give one JSON object a line: {_FORMS}")
    return tuple(records)


def _record(line: str, number: int) -> PromptRecord:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidPrompts(f"no JSON ({error}); write each prompt as one JSON object on one line") from error
    if not isinstance(raw, dict):
        raise InvalidPrompts(f"a JSON {_kind(raw)}, not an object; use {_FORMS}")
    raw = {key: value for key, value in raw.items() if value is not None}
    known = _CHAT if "messages" in raw else _PLAIN
    if unknown := sorted(set(raw) - known):
        raise InvalidPrompts(f"{unknown[0]!r} is not known here; the fields are {', '.join(sorted(known))}")
    if {"documents", "segments"} <= set(raw):
        raise InvalidPrompts("documents and segments are two names of one field; keep one of them")
    name = "segments" if "segments" in raw else "documents"
    tools = _list(raw, "tools")
    for at, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise InvalidPrompts(f"tools[{at}] is {_kind(tool)}; give an object in OpenAI's format")
    documents = tuple(_segment(part, f"{name}[{at}]") for at, part in enumerate(_list(raw, name)))
    answer = _text(raw, "answer") if "answer" in raw else None
    if "messages" in raw:
        messages = _list(raw, "messages")
        question = _last_question(messages, documents)
        return PromptRecord(number, question, tuple(messages), None, tuple(tools), documents, answer)
    if "question" not in raw:
        raise InvalidPrompts(f"neither messages nor a question; use {_FORMS}")
    system = _text(raw, "system") if raw.get("system") else None
    return PromptRecord(number, _text(raw, "question"), (), system, tuple(tools), documents, answer)


def _last_question(messages: Sequence[Any], documents: Sequence[Segment]) -> str:
    """The text of the last user message, without the documents that stand in front of it."""
    if not messages:
        raise InvalidPrompts("messages is empty; give at least one message with role and content")
    for at, message in enumerate(messages):
        if not isinstance(message, dict) or "role" not in message:
            raise InvalidPrompts(f"messages[{at}] is no object with a role; use {{'role': 'user', 'content': '...'}}")
    if messages[-1]["role"] in ("assistant", "ai"):
        raise InvalidPrompts("the last message is the assistant's; move its text to 'answer'")
    asked = [message.get("content") for message in messages if message["role"] in ("user", "human")]
    content = asked[-1] if asked else ""
    if isinstance(content, list):
        content = " ".join(str(block.get("text", "")) if isinstance(block, dict) else str(block) for block in content)
    text = str(content or "")
    behind = max((text.rfind(part.text) + len(part.text) for part in documents if part.text in text), default=0)
    return text[behind:].strip() or text


def _segment(part: Any, name: str) -> Segment:
    if isinstance(part, str):
        part = {"text": part}
    if not isinstance(part, dict):
        raise InvalidPrompts(f"{name} is {_kind(part)}; give text, or an object with text, kind and source_id")
    if unknown := sorted(set(part) - _PART):
        raise InvalidPrompts(f"{name} has the unknown field {unknown[0]!r}; the fields are {', '.join(sorted(_PART))}")
    text = _text(part, "text", of=name)
    kind = part.get("kind") or "document"
    if kind not in _KINDS:
        raise InvalidPrompts(f"{name} has the unknown kind {kind!r}; the kinds are {', '.join(_KINDS)}")
    # Ids of databases are often numbers.
    return Segment(text, cast("SegmentKind", kind), str(part.get("source_id") or ""), str(part.get("version") or ""))


def _text(raw: Mapping[str, Any], key: str, *, of: str = "") -> str:
    value = raw.get(key, "")
    if not isinstance(value, str) or not value.strip():
        what = f"{of} {key}".strip()
        found = "empty" if value == "" or isinstance(value, str) else _kind(value)
        raise InvalidPrompts(f"{what} is {found}; give text" + (", or leave it out" if key == "answer" else ""))
    return value


def _list(raw: Mapping[str, Any], key: str) -> list[Any]:
    value = raw.get(key, [])
    if not isinstance(value, list):
        raise InvalidPrompts(f"{key} is {_kind(value)}; give a list")
    return value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "nothing")
