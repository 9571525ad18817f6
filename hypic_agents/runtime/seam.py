"""Where a segment is cut: its head and tail seams stay live, the interior between them is cached. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypic_agents.core import SegmentSpan
from hypic_agents.runtime.policy import ReusePolicy

# The cached conv tail holds the inputs of up to this many interior tokens, so an interior is never shorter.
MIN_INTERIOR = 4


@dataclass(frozen=True, slots=True)
class Interior:
    """Interior ``[head, stop)`` in standalone tokens of a segment; at prompt positions ``[start, end)``."""

    head: int
    stop: int
    start: int
    end: int


def head_width(span: SegmentSpan, policy: ReusePolicy, *, first: bool = False) -> int:
    """Tokens at the start of ``span`` that stay live. ``first``: no other segment stands before it but the system's."""
    num_tokens = len(span.token_ids)
    width = dict(policy.head_seam_by_kind).get(span.segment.kind, policy.head_seam)
    grown = min(policy.head_seam_max, int(policy.head_seam_share * num_tokens))
    return max(width, grown, policy.first_seam if first else 0)


def find_interior(span: SegmentSpan, policy: ReusePolicy, *, first: bool = False) -> Interior | str:
    """The part of ``span`` that may be reused, or the reason why none is.

    The interior is cut from the standalone tokens, never from the prompt's, so that one entry serves every prompt; it
    is reusable where the prompt holds exactly those ids.
    """
    num_tokens = len(span.token_ids)
    if num_tokens < policy.min_segment_len:
        return f"shorter than min_segment_len={policy.min_segment_len} ({num_tokens} tokens)"
    head, stop = head_width(span, policy, first=first), num_tokens - policy.tail_seam
    if stop - head < MIN_INTERIOR:
        return f"nothing left between the seams ({num_tokens} tokens)"
    start, end = span.origin + head, span.origin + stop
    if start < span.start or end > span.end:
        return "its tokens differ here beyond the seams"
    return Interior(head, stop, start, end)


def cut(interior: Interior, piece_len: int) -> tuple[Interior, ...]:
    """The interior at every multiple of ``piece_len`` standalone tokens, short ends joined to their neighbours.

    Places do not depend on the seams, so policies of different seams share the pieces that none of them touches.
    """
    if not piece_len:
        return (interior,)
    first = (interior.head + MIN_INTERIOR + piece_len - 1) // piece_len * piece_len
    cuts = range(first, interior.stop - MIN_INTERIOR + 1, piece_len)
    shift = interior.start - interior.head
    edges = (interior.head, *cuts, interior.stop)
    return tuple(Interior(a, b, a + shift, b + shift) for a, b in pairwise(edges))


def find_pieces(span: SegmentSpan, policy: ReusePolicy, prompt_len: int, *, first: bool) -> tuple[Interior, ...] | str:
    """The parts of a span that are reused, in order; or why none is."""
    interior = find_interior(span, policy, first=first)
    if isinstance(interior, str):
        return interior
    if interior.end >= prompt_len:
        return "nothing stands behind it"
    return cut(interior, policy.piece_len)
