"""Where known texts stand in a rendered chat.

Only verbatim text counts, so a wrong hint can lose reuse and never changes a prompt. Explicit texts come first, longest
first, so a chunk inside a known file does not cut the file; texts the builder guessed fill what is left.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hypic_agents.core import Segment

SHORT_LEN = 32  # characters; a shorter text may stand elsewhere by chance, so each is looked for once, in order
_ANCHOR_LEN = 16
_NUM_NEEDLES_WITHOUT_ANCHORS = 64


@dataclass(frozen=True, slots=True)
class Known:
    """A text to look for.

    Attributes:
        segment: What the text belongs to.
        remainder_len: 0 for an explicit text, which is found whole or not at all. Else the text is a guess, and where
            explicit texts stand inside it, what is left counts from this length on (characters).
    """

    segment: Segment
    remainder_len: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """A segment at characters ``[start, end)``; its text is exactly what stands there."""

    start: int
    end: int
    segment: Segment


def place(text: str, knowns: Sequence[Known]) -> list[Placed]:
    """Find the texts, raw, stripped or escaped; the result is ordered and does not overlap.

    A text of 32 characters or more is found wherever it stands; equal texts are given to their segments in order, and
    further ones to the last. A shorter text is found once a segment, after the one before it where possible.
    """
    taken = _Taken()
    placed: list[Placed] = []
    for guessed in (False, True):
        group = [known for known in knowns if bool(known.remainder_len) is guessed and known.segment.text.strip()]
        regions = _place_long(text, group, taken)
        _place_short(text, group, regions, taken)
        segments: dict[str, list[Segment]] = defaultdict(list)
        for known in group:
            segments[known.segment.text].append(known.segment)
        for key, found in regions.items():
            owners = segments[key]
            for i, (start, end) in enumerate(sorted(found)):
                owner = owners[min(i, len(owners) - 1)]
                placed.append(Placed(start, end, _with_text(owner, text[start:end])))
    return sorted(placed, key=lambda item: item.start)


class _Taken:
    """The regions of a text that belong to a segment."""

    def __init__(self) -> None:
        self._regions: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        insort(self._regions, (start, end))

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """Taken regions that overlap ``[start, end)``, in order."""
        first = bisect_right(self._regions, start, key=lambda region: region[1])
        return self._regions[first : bisect_left(self._regions, end, key=lambda region: region[0])]


_Regions = defaultdict[str, list[tuple[int, int]]]


def _place_long(text: str, group: Iterable[Known], taken: _Taken) -> _Regions:
    """Regions by segment text."""
    needles: dict[str, Known] = {}
    for known in group:
        if len(known.segment.text) >= SHORT_LEN:
            for form in _forms(known.segment.text, text):
                needles.setdefault(form, known)
    regions: _Regions = defaultdict(list)
    for needle in sorted(_anchored(text, needles), key=len, reverse=True):
        known = needles[needle]
        for start, end in _occurrences(text, needle, taken, known.remainder_len):
            taken.add(start, end)
            regions[known.segment.text].append((start, end))
    return regions


def _place_short(text: str, group: Iterable[Known], regions: _Regions, taken: _Taken) -> None:
    """Add the short texts of ``group`` to ``regions``."""
    cursor = 0
    seen: Counter[str] = Counter()
    for known in group:
        key = known.segment.text
        found = sorted(regions[key])
        if len(key) < SHORT_LEN:
            tries = ((form, at) for at in dict.fromkeys((cursor, 0)) for form in dict.fromkeys((key, key.strip())))
            hits = (hit for form, at in tries for hit in _occurrences(text, form, taken, at=at))
            found = [hit for hit in [next(hits, None)] if hit is not None]
            for start, end in found:
                taken.add(start, end)
                regions[key].append((start, end))
        elif seen[key] < len(found):
            found = found[seen[key] :]
        seen[key] += 1
        cursor = found[0][1] if found else cursor


def _occurrences(
    text: str, needle: str, taken: _Taken, remainder_len: int = 0, at: int = 0
) -> Iterator[tuple[int, int]]:
    """Free regions where ``needle`` stands, from the left; for a guess, what is free of each."""
    while (at := text.find(needle, at)) >= 0:
        end = at + len(needle)
        blockers = taken.within(at, end)
        if not blockers:
            yield at, end
        elif remainder_len:
            edges = [at, *(edge for blocker in blockers for edge in blocker), end]
            for start, stop in zip(edges[::2], edges[1::2], strict=True):
                piece = text[start:stop].strip()
                if len(piece) >= remainder_len:
                    first = text.index(piece, start)
                    yield first, first + len(piece)
        else:
            end = blockers[-1][1]  # whatever starts before it overlaps it too
        at = end


def _forms(segment_text: str, text: str) -> Iterable[str]:
    """Spellings under which frameworks put a segment's text into ``text``: as it is, else escaped."""
    stripped = segment_text.strip()
    if stripped in text:
        return dict.fromkeys((segment_text, stripped))
    spellings = (json.dumps(segment_text, ensure_ascii=False)[1:-1], json.dumps(segment_text)[1:-1])
    return dict.fromkeys((*spellings, repr(segment_text)[1:-1]))


def _anchored(text: str, needles: Iterable[str]) -> list[str]:
    """Needles whose first characters stand somewhere in ``text``: cheap where thousands of texts are known."""
    candidates = [needle for needle in needles if len(needle) >= _ANCHOR_LEN]
    if len(candidates) <= _NUM_NEEDLES_WITHOUT_ANCHORS:
        return list(needles)
    anchors = {text[i : i + _ANCHOR_LEN] for i in range(len(text) - _ANCHOR_LEN + 1)}
    return [needle for needle in candidates if needle[:_ANCHOR_LEN] in anchors]


def _with_text(segment: Segment, text: str) -> Segment:
    return segment if segment.text == text else replace(segment, text=text)
