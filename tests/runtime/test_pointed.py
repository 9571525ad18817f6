"""What a question points at: decided by the tokens that few parts share with it, under a budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import Prompt, Segment, SegmentSpan
from hypic_agents.runtime.pointed import Part, choose_pointed, question_ids

FILLER = (1, 2, 3, 4)
QUESTION = (1, 2, 3, 4, 1, 2, 3, 4)


def prompt_of(*segments: tuple[int, ...], question: tuple[int, ...]) -> tuple[Prompt, list[Part]]:
    ids: list[int] = []
    spans = []
    for segment in segments:
        spans.append(SegmentSpan(Segment(""), segment, len(ids), len(ids) + len(segment), len(ids)))
        ids.extend(segment)
    return Prompt((*ids, *question), tuple(spans)), [Part(s.start, s.end, s.start) for s in spans]


def test_the_part_that_holds_the_asked_name_is_chosen() -> None:
    prompt, parts = prompt_of(
        (*FILLER, 50, 51, 60), (*FILLER, 52, 53, 61), (*FILLER, 54, 55, 62), question=(*QUESTION, 52, 53)
    )
    assert choose_pointed(prompt, parts, budget=7) == {1}


def test_a_name_in_two_tokens_counts_as_a_whole() -> None:
    prompt, parts = prompt_of(
        (*FILLER, 50, 9, 51), (*FILLER, 51, 9, 50), (*FILLER, 50, 51, 9), question=(*QUESTION, 50, 51)
    )
    assert choose_pointed(prompt, parts, budget=7) == {2}


def test_what_every_part_holds_points_at_none() -> None:
    prompt, parts = prompt_of((*FILLER, 50), (*FILLER, 51), question=QUESTION)
    assert choose_pointed(prompt, parts, budget=100) == frozenset()


def test_later_statements_win_ties() -> None:
    prompt, parts = prompt_of((*FILLER, 50), (*FILLER, 60), (*FILLER, 50), question=(*QUESTION, 50))
    assert choose_pointed(prompt, parts, budget=5) == {2}
    assert choose_pointed(prompt, parts, budget=10) == {0, 2}


def test_what_follows_the_name_is_pointed_at_within_the_segment_only() -> None:
    prompt, _ = prompt_of((*FILLER, 50, 51), (70, 71, 72, 73), (*FILLER, 60, 61), question=(*QUESTION, 50, 51))
    pieces = [Part(0, 6, 0), Part(6, 10, 0), Part(10, 16, 10)]
    assert choose_pointed(prompt, pieces, budget=10) == {0, 1}
    assert choose_pointed(prompt, [pieces[0], Part(6, 10, 6), pieces[2]], budget=10) == {0}


def test_a_question_that_stands_before_the_segments_is_found() -> None:
    ids = (7, 50, 51, 8, *FILLER, *FILLER, 9)
    prompt = Prompt(ids, (SegmentSpan(Segment(""), FILLER * 2, 4, 12, 4),))
    assert question_ids(prompt) == (7, 50, 51, 8, 9)
    assert question_ids(Prompt(ids, ())) == ids


@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=30).map(tuple), min_size=1, max_size=6),
    st.lists(st.integers(0, 12), max_size=20).map(tuple),
    st.integers(0, 80),
)
def test_the_budget_holds_and_nothing_but_the_tokens_counts(
    segments: list[tuple[int, ...]], question: tuple[int, ...], budget: int
) -> None:
    prompt, parts = prompt_of(*segments, question=question)
    chosen = choose_pointed(prompt, parts, budget)
    assert sum(parts[i].end - parts[i].start for i in chosen) <= budget
    # Other ids in the same pattern, other texts and sources: the same choice.
    renamed, _ = prompt_of(*(tuple(t + 100 for t in s) for s in segments), question=tuple(t + 100 for t in question))
    other = Prompt(
        renamed.token_ids,
        tuple(SegmentSpan(Segment("x", "tool", "y"), s.token_ids, s.start, s.end, s.origin) for s in renamed.spans),
        "text",
    )
    assert choose_pointed(other, parts, budget) == chosen
