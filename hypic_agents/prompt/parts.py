"""Segments nobody declared: the system text, tool specs and long earlier turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hypic_agents.core import Scope, Segment, SegmentKind
from hypic_agents.prompt.align import SHORT_LEN, Known
from hypic_agents.prompt.canonical import tool_forms, tool_name
from hypic_agents.prompt.volatile import steady_pieces

TURN_LEN = 200  # characters from which an earlier message is worth a segment


def system_segments(texts: Iterable[str], scope: Scope) -> Iterator[Known]:
    """The system message's texts, cut where a sentence is volatile: only that sentence stays live."""
    for text in texts:
        for piece in steady_pieces(text):
            yield Known(Segment(piece, "system", scope=scope), remainder_len=SHORT_LEN)


def tool_segments(tools: Iterable[Mapping[str, Any]], text: str, scope: Scope) -> Iterator[Known]:
    """Canonical specs as the chat template wrote them into ``text``; a spec it wrote otherwise is left out."""
    for tool in tools:
        form = next((form for form in tool_forms(tool) if form in text), None)
        if form is not None:
            yield Known(Segment(form, "tool", tool_name(tool), scope=scope))


def turn_segments(texts: Iterable[tuple[SegmentKind, str]], scope: Scope) -> Iterator[Known]:
    """Long texts of earlier messages, and of the steps of an agent's trace."""
    for kind, text in texts:
        if len(text) >= TURN_LEN:
            yield Known(Segment(text, kind, scope=scope), remainder_len=TURN_LEN)
