"""What leads to a segment's block in a prompt: role headers and other words of the chat template. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hypic_agents.core import Prompt, Scope, SegmentSpan

# Kinds whose segments form a block of their own; all others form one together.
_BLOCKS: Final = ("system", "tool")


@dataclass(frozen=True, slots=True)
class Lead:
    """Tokens that lead to a block, and whose text they are.

    Attributes:
        scopes: Of the prompt's own text and of the segments that they are part of.
        sources: ``(source_id, version)`` of those segments.
    """

    token_ids: tuple[int, ...] = ()
    scopes: frozenset[Scope] = frozenset()
    sources: tuple[tuple[str, str], ...] = ()


def find_leads(
    prompt: Prompt, spans: Sequence[SegmentSpan], start: int, longest: int, said: Sequence[SegmentSpan] = ()
) -> list[Lead]:
    """For every span, the last tokens before the first span of its block, ``longest`` of them at most.

    All segments of a block have the same lead, so their order does not matter to what is built of them. The last
    tokens, because a role header stays the same from turn to turn, whatever was said before it. Where the prompt itself
    begins with the end of a lead, as one without a system text begins with the user's role header, that end alone is
    the lead: on the first turn there is no more.

    Args:
        prompt: The whole prompt.
        spans: Spans in prompt order, without the one that ends at ``start``.
        start: Prompt position at which the first lead may begin.
        longest: In tokens.
        said: Spans that are live whatever they are: a lead may be part of their text.
    """
    leads: list[Lead] = []
    block = ""
    for span in spans:
        kind = span.segment.kind if span.segment.kind in _BLOCKS else ""
        if kind == "system":
            leads.append(Lead())  # what stands before a piece of the system text is the clock or id it was cut at
        elif not leads or kind != block:
            end = min(span.origin, span.start)
            lead = prompt.token_ids[max(start, end - longest) : max(start, end)]
            leads.append(_lead(prompt, _as_at_the_beginning(prompt, lead), end, said))
        else:
            leads.append(leads[-1])
        block, start = kind, span.end
    return leads


def _lead(prompt: Prompt, token_ids: tuple[int, ...], end: int, said: Sequence[SegmentSpan]) -> Lead:
    if not token_ids:
        return Lead()
    segments = [span.segment for span in said if span.start < end and end - len(token_ids) < span.end]
    own = () if prompt.scope is None else (prompt.scope,)
    scopes = frozenset((*own, *(segment.scope for segment in segments)))
    return Lead(token_ids, scopes, tuple((segment.source_id, segment.version) for segment in segments))


def _as_at_the_beginning(prompt: Prompt, lead: tuple[int, ...]) -> tuple[int, ...]:
    lengths = range(len(lead) - 1, 0, -1)
    return next((lead[-n:] for n in lengths if prompt.token_ids[:n] == lead[-n:]), lead)
