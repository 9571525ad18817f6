from __future__ import annotations

import time
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from hypic_agents.core import Segment
from hypic_agents.prompt.align import Known, Placed, place
from tests import strategies

DOC = "The lease ends in May, says the second page."
FILE = f"First page.\n{DOC}\nThird page, which closes the file."


def found(text: str, *knowns: str | Known) -> list[tuple[int, str]]:
    listed = [Known(Segment(known)) if isinstance(known, str) else known for known in knowns]
    return [(item.start, item.segment.text) for item in place(text, listed)]


def guess(text: str, remainder_len: int = 20) -> Known:
    return Known(Segment(text, "turn"), remainder_len)


@given(
    texts=st.lists(strategies.documents, max_size=5),
    hints=st.lists(strategies.documents, max_size=5),
    glue=st.sampled_from(["\n\n", "", " | "]),
    order=st.randoms(),
)
@settings(max_examples=200, deadline=None)
def test_placements_are_verbatim_ordered_and_disjoint(
    texts: list[str], hints: list[str], glue: str, order: Random
) -> None:
    text = glue.join(texts)
    order.shuffle(texts)
    placed = place(text, [Known(Segment(part), i % 2 * 10) for i, part in enumerate([*texts, *hints])])
    end = 0
    for item in placed:
        assert item.start >= end
        assert text[item.start : item.end] == item.segment.text
        assert item.segment.text.strip()
        end = item.end


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_every_document_is_found_whatever_the_order(numbers: list[int]) -> None:
    texts = [f"Document number {number}: the lease ends in May." for number in numbers]
    text = "intro\n\n" + "\n\n".join(texts) + "\n\nquestion"
    assert [hit for _, hit in found(text, *sorted(texts))] == texts


def test_longest_wins_over_what_it_holds() -> None:
    assert found(f"x {FILE} y {DOC}", DOC, FILE) == [(2, FILE), (5 + len(FILE), DOC)]


def test_longest_wins_over_what_it_overlaps() -> None:
    left, right = "aaaa " * 8 + "shared part of both", "shared part of both" + " bbbb" * 9
    assert [hit for _, hit in found(left + right[19:], left, right)] == [right]


def test_equal_texts_go_to_their_segments_in_order() -> None:
    knowns = [Known(Segment(DOC, source_id="a")), Known(Segment(DOC, source_id="b"))]
    placed = place(f"{DOC}\n\n{DOC}\n\n{DOC}", knowns)
    assert [item.segment.source_id for item in placed] == ["a", "b", "b"]


def test_forms_that_frameworks_write() -> None:
    raw = f'\n "{DOC}"\n汉字\t '
    assert found(f"x{raw}y", raw) == [(1, raw)]
    assert found(f"x{raw.strip()}y", raw) == [(1, raw.strip())]
    assert found(str([raw]), raw) == [(2, repr(raw)[1:-1])]
    assert found('["\\n \\"' + DOC + '\\"\\n\\u6c49\\u5b57\\t "]', raw)[0][0] == 2


def test_short_texts_are_found_once_each_in_order() -> None:
    text = "May is in the rules.\n\nMay\n\nJune\n\nMay\n\nWhen?"
    assert found(text, "the rules.", "May", "June", "May") == [
        (10, "the rules."),
        (22, "May"),
        (27, "June"),
        (33, "May"),
    ]
    assert found(text, "June", "rules.") == [(14, "rules."), (27, "June")]


def test_a_guess_fills_what_explicit_texts_leave() -> None:
    turn = f"Use these pages to answer.\n\n{DOC}\n\nWhen does it end, please?\n\n{DOC}\n\nshort"
    assert found(f"<{turn}>", guess(turn), DOC) == [
        (1, "Use these pages to answer."),
        (29, DOC),
        (31 + len(DOC), "When does it end, please?"),
        (58 + len(DOC), DOC),
    ]
    assert found(f"<{turn}>", guess(turn)) == [(1, turn)]


def test_texts_that_stand_nowhere_or_are_blank_are_left_out() -> None:
    assert found("some text", DOC, "", "  \n ", "absent") == []


def test_thousands_of_known_texts_cost_milliseconds() -> None:
    page = "The lease ends in May. " * 130
    text = "\n\n".join(f"{i} {page}" for i in range(20))
    knowns = [Known(Segment(f"{i} {page}")) for i in range(2000)]
    begin = time.perf_counter()
    placed = place(text, knowns)
    assert len(placed) == 20
    assert time.perf_counter() - begin < 0.5
    assert placed[0] == Placed(0, len(f"0 {page}"), knowns[0].segment)
