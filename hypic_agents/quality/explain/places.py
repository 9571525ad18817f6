"""Where what a question needs stands in its prompt, in tokens, and how far that is from what is live. No torch."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from hypic_agents.core import SegmentSpan
from hypic_agents.prompt.tool_calls import parse_tool_calls
from hypic_agents.quality.questions import Item
from hypic_agents.quality.worlds.evidence import Found, find_statement
from hypic_agents.runtime.plan import Plan, ReusedSpan, SegmentNote

_NUMBERED = re.compile(r"(\w+)-\d+")


class Decoder(Protocol):
    """What is needed of a tokenizer."""

    def decode(self, ids: tuple[int, ...]) -> str: ...


@dataclass(frozen=True, slots=True)
class FactPlace:
    """One needed fact under one plan. Positions and lengths in tokens of the prompt.

    Attributes:
        source_id: The segment that states it.
        kind: The segment's kind.
        style: How it is written: a document's style in the generated world, else its kind.
        order: The segment's place among the prompt's segments behind the system prompt, from 1.
        segments: How many of these there are.
        segment_len: The segment's tokens.
        composed: Whether the plan takes any of the segment from the store.
        reason: Why it does not.
        statement: The words that state the fact; None if they were not found.
        value: What the answer takes from them: a value, an amount, the name of a tool.
        position: First token of the value.
        length: Tokens of the value.
        to_seam: ``position`` minus the first token behind the live run before it, most often the head seam; negative
            inside the head seam. None if the whole segment is live or the value was not found.
        statement_to_seam: The same for the first token of the statement.
        to_live: Tokens from the value's first one to the next live one; 0 if it is live itself.
    """

    source_id: str
    kind: str
    style: str
    order: int
    segments: int
    segment_len: int
    composed: bool
    reason: str = ""
    statement: str | None = None
    value: str | None = None
    position: int | None = None
    length: int | None = None
    to_seam: int | None = None
    statement_to_seam: int | None = None
    to_live: int | None = None


def place_facts(item: Item, plan: Plan, tokenizer: Decoder) -> tuple[FactPlace, ...]:
    """The facts that an item's question needs, in the order in which they stand in the prompt.

    A document's fact is located by its value, a tool by the name in its spec. What the prompt holds no segment for
    (a short tool result, a document that another text covers) is left out.
    """
    behind = [note for note in plan.notes if note.span.segment.kind != "system"]
    places: list[tuple[int, FactPlace]] = []
    for at, found in _needed(item, behind):
        note = behind[at]
        span, segment = note.span, note.span.segment
        bare = FactPlace(
            source_id=segment.source_id,
            kind=segment.kind,
            style=_style(segment.source_id, segment.kind),
            order=at + 1,
            segments=len(behind),
            segment_len=len(span.token_ids),
            composed=bool(_composed_runs(plan, span)),
            reason=note.reason,
        )
        place = bare if found is None else _located(bare, found, item, span, plan, tokenizer)
        places.append((span.start, place))
    return tuple(place for _, place in sorted(places, key=lambda pair: (pair[0], pair[1].position or 0)))


def _needed(item: Item, behind: list[SegmentNote]) -> Iterator[tuple[int, Found | None]]:
    """Index into ``behind`` and the characters, for every needed fact and every tool that the answer calls."""
    if item.question is None:
        return
    texts = [note.span.segment.text for note in behind]
    places = {(note.span.segment.kind, note.span.segment.source_id): at for at, note in enumerate(behind)}
    for index, statement in item.question.evidence:
        document = item.documents[index]
        at = places.get((document.kind, document.source_id))
        if at is not None:
            yield at, find_statement(texts[at], statement)
    for name in dict.fromkeys(call.name for call in parse_tool_calls(item.question.answer)):
        at = places.get(("tool", name))
        if at is not None:
            spelled = re.search(rf'"name": ?"({re.escape(name)})"', texts[at])
            yield at, Found(*spelled.span(), *spelled.span(1)) if spelled else None


def _located(bare: FactPlace, found: Found, item: Item, span: SegmentSpan, plan: Plan, tokenizer: Decoder) -> FactPlace:
    """``bare`` with positions, if the prompt's own tokens hold the value there."""
    text = span.segment.text
    if tokenizer.decode(span.token_ids) != text:
        return bare
    first = _token_at(span, found.value_start, tokenizer)
    last = _token_at(span, found.value_end - 1, tokenizer)
    value = text[found.value_start : found.value_end]
    position = span.origin + first
    if value not in tokenizer.decode(item.prompt.token_ids[position : span.origin + last + 1]):
        return bare
    begins = span.origin + _token_at(span, found.start, tokenizer)
    runs = _composed_runs(plan, span)
    within = next((run for run in runs if run[0] <= position < run[1]), None)
    seam_end = within[0] if within else runs[0][0] if runs else None
    return replace(
        bare,
        statement=text[found.start : found.end],
        value=value,
        position=position,
        length=last - first + 1,
        to_seam=None if seam_end is None else position - seam_end,
        statement_to_seam=None if seam_end is None else begins - seam_end,
        to_live=within[1] - position if within else 0,
    )


def _composed_runs(plan: Plan, span: SegmentSpan) -> list[tuple[int, int]]:
    """Prompt positions ``[start, end)`` of the segment that are composed, without a live token in between."""
    runs: list[tuple[int, int]] = []
    for one in plan.spans:
        if isinstance(one, ReusedSpan) and span.start <= one.start < span.end:
            start = runs.pop()[0] if runs and runs[-1][1] == one.start else one.start
            runs.append((start, one.end))
    return runs


def _token_at(span: SegmentSpan, character: int, tokenizer: Decoder) -> int:
    """Index of the standalone token that holds a character of the segment's text."""
    lengths = _PrefixLengths(span.token_ids, tokenizer)
    return bisect_right(lengths, character)


class _PrefixLengths:
    """Characters in the first ``i + 1`` tokens, decoded only where they are asked for."""

    def __init__(self, ids: tuple[int, ...], tokenizer: Decoder) -> None:
        self._ids, self._tokenizer = ids, tokenizer

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> int:
        return len(self._tokenizer.decode(self._ids[: index + 1]))


def _style(source_id: str, kind: str) -> str:
    numbered = _NUMBERED.fullmatch(source_id)
    return numbered[1] if numbered and kind != "tool" else kind
