"""Segments of a chat that came without any: known texts first, content-defined chunks as the floor.

============================================  =========================================================================
stands in a message                           becomes
============================================  =========================================================================
a text the caller declared                    its segment
a text an observer registered for the scope   its segment; of two versions of one source the older one stays live
a stretch of 1,200 characters or more that    content-defined chunks of 600 to 4,000 characters; the last one of the
neither covers                                last user message stays live: it holds the question
a tool result or earlier turn                 found by the prompt builder as a whole
============================================  =========================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hypic_agents.core import Scope, Segment, SegmentKind
from hypic_agents.prompt.align import Known, place
from hypic_agents.prompt.chunks import MIN_CHUNK_LEN, chunks
from hypic_agents.prompt.registry import TextRegistry

MIN_STRETCH_LEN: Final = 2 * MIN_CHUNK_LEN
# A system text is cut by the prompt builder; what the model wrote itself is short.
_KINDS: Final[dict[str, SegmentKind]] = {"user": "document", "human": "document", "tool": "trace", "function": "trace"}


def recover(
    messages: Sequence[Mapping[str, Any]],
    declared: Sequence[Segment] = (),
    *,
    registry: TextRegistry | None = None,
    scope: Scope,
) -> list[Segment]:
    """Hints for ``PromptBuilder.build_chat``: ``declared`` and what else is found in the messages' texts.

    A pure function of its arguments and of the texts registered for ``scope``. Hints never change a prompt's tokens.
    """
    hints = list(dict.fromkeys(declared))
    known = {segment.text for segment in hints}
    texts = list(_texts(messages))
    last_user = max((i for i, (role, _) in enumerate(texts) if role in ("user", "human")), default=-1)
    for number, (role, text) in enumerate(texts):
        found = [] if registry is None else [s for s in registry.find(text, scope) if s.text not in known]
        hints += found
        known.update(segment.text for segment in found)
        if role in _KINDS and len(text) >= MIN_STRETCH_LEN:
            for piece in _pieces(text, hints, holds_question=number == last_user):
                if piece not in known:
                    known.add(piece)
                    hints.append(Segment(piece, _KINDS[role], scope=scope))
    return hints


def _pieces(text: str, hints: Sequence[Segment], *, holds_question: bool) -> Iterator[str]:
    """Chunks of what the hints leave free of ``text``."""
    at = 0
    stretches: list[tuple[int, int]] = []
    for region in place(text, [Known(hint) for hint in hints]):
        stretches.append((at, region.start))
        at = region.end
    stretches.append((at, len(text)))
    for start, end in stretches:
        if end - start < MIN_STRETCH_LEN:
            continue
        regions = list(chunks(text[start:end]))
        if holds_question and end == len(text) and regions:
            regions.pop()
        for first, last in regions:
            piece = text[start + first : start + last].strip()
            if len(piece) >= MIN_CHUNK_LEN // 2:
                yield piece


def _texts(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """``(role, text)`` of every text and text block."""
    for message in messages:
        role, content = str(message.get("role", "")), message.get("content")
        for block in content if isinstance(content, list | tuple) else [content]:
            text = block.get("text") if isinstance(block, Mapping) else block
            if isinstance(text, str) and text:
                yield role, text
