"""Where a segment is cut: its head and tail seams stay live, the interior between them is cached. No torch."""

from __future__ import annotations

from dataclasses import dataclass

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


def find_interior(span: SegmentSpan, policy: ReusePolicy) -> Interior | str:
    """The part of ``span`` that may be reused, or the reason why none is.

    The interior is cut from the standalone tokens, never from the prompt's, so that one entry serves every prompt; it
    is reusable where the prompt holds exactly those ids.
    """
    num_tokens = len(span.token_ids)
    if num_tokens < policy.min_segment_len:
        return f"shorter than min_segment_len={policy.min_segment_len} ({num_tokens} tokens)"
    head, stop = policy.head_seam, num_tokens - policy.tail_seam
    if stop - head < MIN_INTERIOR:
        return f"nothing left between the seams ({num_tokens} tokens)"
    start, end = span.origin + head, span.origin + stop
    if start < span.start or end > span.end:
        return "its tokens differ here beyond the seams"
    return Interior(head, stop, start, end)
