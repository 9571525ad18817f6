"""From a segment's characters to its tokens: which run of the prompt's ids are the segment's own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import eq

from hypic_agents.core import SegmentSpan
from hypic_agents.prompt.align import Placed
from hypic_agents.prompt.tokenizer import Tokens

_NUM_BORDER_TOKENS = 4  # more than neighbouring text changes at a border
_ANCHOR_LEN = 4


def snap(placed: Placed, standalone: tuple[int, ...], tokens: Tokens, not_before: int = 0) -> SegmentSpan | None:
    """The longest run of the prompt's tokens, wholly inside the segment's characters, that equals ``standalone``'s.

    Args:
        placed: The segment and its characters.
        standalone: The ids of the segment's text alone.
        tokens: The whole prompt.
        not_before: First token that no earlier segment holds.

    Returns:
        The span, or ``None`` if no token agrees.
    """
    first = max(bisect_left(tokens.starts, placed.start), not_before)
    last = bisect_right(tokens.ends, placed.end)
    start, end, shift = longest_run(tokens.ids[first:last], standalone)
    if start == end:
        return None
    return SegmentSpan(placed.segment, standalone, first + start, first + end, first - shift)


def longest_run(ids: Sequence[int], standalone: Sequence[int]) -> tuple[int, int, int]:
    """``(start, end, shift)`` with ``ids[i] == standalone[i + shift]`` for all i in ``[start, end)``, as long as found.

    Shifts near both borders are tried first; if less than half agrees there, shifts at which four tokens agree.
    """
    shortest = min(len(ids), len(standalone))
    close_enough = shortest - min(_NUM_BORDER_TOKENS - 1, shortest // 8)
    best = (0, 0, 0)
    for shift in _border_shifts(len(standalone) - len(ids)):
        best = max(best, _run(ids, standalone, shift), key=_length)
        if _length(best) >= close_enough:
            return best
    if 2 * _length(best) < shortest:
        for shift in _anchor_shifts(ids, standalone):
            best = max(best, _run(ids, standalone, shift), key=_length)
    return best


def _length(run: tuple[int, int, int]) -> int:
    return run[1] - run[0]


def _border_shifts(tail_shift: int) -> Iterator[int]:
    steps = [0, *(sign * n for n in range(1, _NUM_BORDER_TOKENS + 1) for sign in (1, -1))]
    yield from dict.fromkeys(base + step for step in steps for base in (tail_shift, 0))


def _anchor_shifts(ids: Sequence[int], standalone: Sequence[int]) -> set[int]:
    anchors: dict[tuple[int, ...], int] = {}
    for position in range(0, len(standalone) - _ANCHOR_LEN + 1, max(1, len(standalone) // 16)):
        anchors.setdefault(tuple(standalone[position : position + _ANCHOR_LEN]), position)
    grams = enumerate(zip(*(ids[i:] for i in range(_ANCHOR_LEN)), strict=False))
    return {anchors[gram] - i for i, gram in grams if gram in anchors}


def _run(ids: Sequence[int], standalone: Sequence[int], shift: int) -> tuple[int, int, int]:
    """The longest run at one shift."""
    low, high = max(0, -shift), min(len(ids), len(standalone) - shift)
    if low >= high:
        return 0, 0, shift
    agree = bytes(map(eq, ids[low:high], standalone[low + shift : high + shift]))
    longest = max(agree.split(b"\0"), key=len)
    start = low + agree.find(longest) if longest else low
    return start, start + len(longest), shift
