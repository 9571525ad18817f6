"""Which parts of a prompt its question points at: rare runs of tokens that both hold. Token ids alone; no torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hypic_agents.core import Prompt, SegmentSpan
from hypic_agents.runtime.policy import ReusePolicy
from hypic_agents.runtime.seam import Interior

# Single tokens say little where a name has several, longer runs are rarely repeated word for word.
_RUN_LENS: Final = (1, 2, 3)
# A question's end alone is what the chat template adds; the question then stands elsewhere.
_MIN_QUESTION: Final = 8
# What is asked for mostly follows what names it, so a part also counts runs that end shortly before it.
_REACH: Final = 12
_BEFORE: Final = 0.5

_Run = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Prompt positions ``[start, end)`` of a segment that begins at ``segment_start``."""

    start: int
    end: int
    segment_start: int


def find_pointed(
    prompt: Prompt, policy: ReusePolicy, spans: Sequence[SegmentSpan], pieces: Sequence[tuple[Interior, ...] | str]
) -> frozenset[Interior]:
    """What of the spans' pieces could be reused and is recomputed, because the question points at it."""
    budget = int(policy.recompute_pointed * len(prompt))
    if not budget:
        return frozenset()
    found = [
        (span, piece)
        for span, one in zip(spans, pieces, strict=True)
        if not isinstance(one, str)
        for piece in one
        if piece.end - piece.start <= policy.recompute_max_len
    ]
    parts = [Part(piece.start, piece.end, span.start) for span, piece in found]
    return frozenset(found[i][1] for i in choose_pointed(prompt, parts, budget))


def choose_pointed(prompt: Prompt, parts: Sequence[Part], budget: int) -> frozenset[int]:
    """Indices of the parts at which the question points most, of at most ``budget`` tokens together.

    A part's score is the sum over the distinct runs of one to three tokens that it shares with the question, each
    weighted by ``log(parts / parts that hold it)``. Nothing that stands in every part counts. Of equal scores the later
    part wins, because later statements correct earlier ones.
    """
    asked = set(_runs(question_ids(prompt)))
    scores = _scores(prompt.token_ids, parts, asked)
    chosen: set[int] = set()
    for i in sorted(range(len(parts)), key=lambda i: (-scores[i], -i)):
        length = parts[i].end - parts[i].start
        if scores[i] > 0 and length <= budget:
            chosen.add(i)
            budget -= length
    return frozenset(chosen)


def question_ids(prompt: Prompt) -> tuple[int, ...]:
    """The tokens behind the last segment, or all outside of segments where hardly any stand there."""
    last = prompt.spans[-1].end if prompt.spans else 0
    if len(prompt) - last >= _MIN_QUESTION:
        return prompt.token_ids[last:]
    edges = (0, *(edge for span in prompt.spans for edge in (span.start, span.end)), len(prompt))
    return tuple(token for a, b in zip(edges[::2], edges[1::2], strict=True) for token in prompt.token_ids[a:b])


def _scores(token_ids: Sequence[int], parts: Sequence[Part], asked: set[_Run]) -> list[float]:
    inside: list[set[_Run]] = []
    before: list[set[_Run]] = []
    for part in parts:
        inside.append(asked.intersection(_runs(token_ids[part.start : part.end])))
        lead = token_ids[max(part.segment_start, part.start - _REACH) : part.start]
        before.append(asked.intersection(_runs(lead)) - inside[-1])
    held = Counter(run for runs in inside for run in runs)
    weight = {run: math.log(len(parts) / count) for run, count in held.items()}
    return [
        math.fsum(weight[run] for run in here) + _BEFORE * math.fsum(weight.get(run, 0.0) for run in there)
        for here, there in zip(inside, before, strict=True)
    ]


def _runs(token_ids: Sequence[int]) -> Iterable[_Run]:
    for length in _RUN_LENS:
        for at in range(len(token_ids) - length + 1):
            yield tuple(token_ids[at : at + length])
