"""Segments nobody declared: the system text, tool specs and long earlier turns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hypic_agents.core import Scope, Segment
from hypic_agents.prompt.align import SHORT_LEN, Known
from hypic_agents.prompt.canonical import tool_forms, tool_name

TURN_LEN = 200  # characters from which an earlier message is worth a segment

_SENTENCE = re.compile(r"[^\n]+?(?:[.!?](?=\s)|(?=\n)|$)")
_CUE = re.compile(r"\b(?:current|today|now|date|time|timestamp|session|request)\b", re.IGNORECASE)
_CLOCK = re.compile(
    r"\b\d{1,2}:\d{2}(?::\d{2})?\b"
    r"|\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b"
    r"|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{4}\b"
    r"|\b\d{1,2}\.? (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* \d{4}\b"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* \d{1,2},? \d{4}\b"
    r"|\b\d{10}(?:\d{3})?\b",
    re.IGNORECASE,
)
_ALWAYS_NEW = re.compile(
    r"\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}|\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE
)


def system_segments(texts: Iterable[str], scope: Scope) -> Iterator[Known]:
    """The system message's texts, cut where a sentence states the time or an id: only that sentence stays live."""
    for text in texts:
        for piece in _cut_at_volatile(text):
            yield Known(Segment(piece, "system", scope=scope), remainder_len=SHORT_LEN)


def tool_segments(tools: Iterable[Mapping[str, Any]], text: str, scope: Scope) -> Iterator[Known]:
    """Canonical specs as the chat template wrote them into ``text``; a spec it wrote otherwise is left out."""
    for tool in tools:
        form = next((form for form in tool_forms(tool) if form in text), None)
        if form is not None:
            yield Known(Segment(form, "tool", tool_name(tool), scope=scope))


def turn_segments(texts: Iterable[str], scope: Scope) -> Iterator[Known]:
    """Long texts of earlier messages and tool results."""
    for text in texts:
        if len(text) >= TURN_LEN:
            yield Known(Segment(text, "turn", scope=scope), remainder_len=TURN_LEN)


def _cut_at_volatile(text: str) -> list[str]:
    volatile = [m.span() for m in _SENTENCE.finditer(text) if _is_volatile(m.group())]
    if not volatile:
        return [text]
    edges = [0, *(edge for region in volatile for edge in region), len(text)]
    pieces = (text[start:end].strip() for start, end in zip(edges[::2], edges[1::2], strict=True))
    return [piece for piece in pieces if len(piece) >= SHORT_LEN]


def _is_volatile(sentence: str) -> bool:
    return bool(_ALWAYS_NEW.search(sentence) or (_CUE.search(sentence) and _CLOCK.search(sentence)))
