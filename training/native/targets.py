"""Which predictions of a pass are trained on, and how: decided from the plan alone, without torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from hypic_agents.runtime.plan import Build, LiveSpan, Plan, ReusedSpan
from training.native.examples import Example

# ANSWER: the loss of a given answer, and distilled. FOLLOW: distilled only. DOCUMENT: next-token loss only.
ANSWER, FOLLOW, DOCUMENT = 0, 1, 2
DISTILLED: Final = (ANSWER, FOLLOW)


@dataclass(frozen=True, slots=True)
class Target:
    """The prediction made at ``position``: of token id ``token`` (unused by FOLLOW), trained as ``kind``."""

    position: int
    token: int
    kind: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the losses of a step ask for: text of documents, and positions to distil."""

    document: bool
    distilled: bool


def row_targets(example: Example, plan: Plan, wanted: Wanted, *, isolated: bool) -> list[Target]:
    """Targets among the tokens that the request's own pass computes, in order of position.

    Without an answer, the live tokens behind the first reused segment are distilled: they are what composition
    changes, in an isolated pass and, to hold it in place, in an ordinary one.
    """
    prompt, answer = example.prompt, example.answer_ids
    ids = (*prompt.token_ids, *answer)
    live = _live(plan)
    in_document = _documents(example)
    first = next((span.end for span in plan.spans if _is_segment(span)), len(prompt))
    found = []
    for position in range(len(prompt) + max(0, len(answer) - 1)):
        at_answer = position >= len(prompt) - 1
        if at_answer and answer and example.taught:
            found.append(Target(position, ids[position + 1], ANSWER))
        elif wanted.distilled and (at_answer or (not answer and position >= first and live[position])):
            found.append(Target(position, -1, FOLLOW))
        elif wanted.document and not at_answer and in_document[position + 1] and (live[position] or not isolated):
            found.append(Target(position, ids[position + 1], DOCUMENT))
    return found


def build_targets(build: Build) -> list[Target]:
    """Targets inside the interior that ``build`` computes; positions count from the interior's first token."""
    if build.is_prefix:
        return []
    pairs = pairwise(build.token_ids[build.head :])
    return [Target(position, token, DOCUMENT) for position, (_, token) in enumerate(pairs)]


def count_targets(
    examples: Sequence[Example], plans: Sequence[Plan], wanted: Wanted, *, isolated: bool
) -> Counter[int]:
    """Targets of a step by kind: what its losses are divided by, however it is cut into passes."""
    counts: Counter[int] = Counter()
    for example, plan in zip(examples, plans, strict=True):
        counts.update(target.kind for target in row_targets(example, plan, wanted, isolated=isolated))
        if isolated and wanted.document:
            counts[DOCUMENT] += sum(len(build_targets(build)) for build in plan.builds)
    return counts


def reuses(plan: Plan) -> bool:
    """Whether any segment is composed."""
    return any(_is_segment(span) for span in plan.spans)


def _is_segment(span: LiveSpan | ReusedSpan) -> bool:
    return isinstance(span, ReusedSpan) and not span.build.is_prefix


def _live(plan: Plan) -> list[bool]:
    return [isinstance(span, LiveSpan) for span in plan.spans for _ in range(span.start, span.end)]


def _documents(example: Example) -> list[bool]:
    inside = [False] * (len(example.prompt) + len(example.answer_ids))
    for span in example.prompt.spans:
        if span.segment.kind != "system":
            inside[span.start : span.end] = [True] * (span.end - span.start)
    return inside


def in_passes(examples: Sequence[Example], tokens: int) -> Iterator[list[int]]:
    """Indices of the examples in groups of at most ``tokens`` tokens; a longer example stands alone."""
    group: list[int] = []
    total = 0
    for index, example in enumerate(examples):
        if group and total + example.num_tokens > tokens:
            yield group
            group, total = [], 0
        group.append(index)
        total += example.num_tokens
    if group:
        yield group
