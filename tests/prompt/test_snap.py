from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import Segment
from hypic_agents.prompt.align import Placed
from hypic_agents.prompt.snap import longest_run, snap
from hypic_agents.prompt.tokenizer import Tokens

ids = st.lists(st.integers(0, 3), max_size=30)
PLACED = Placed(2, 8, Segment("abcdef"))


def tokens(*triples: tuple[int, int, int]) -> Tokens:
    columns = list(zip(*triples, strict=True))
    return Tokens(*map(tuple, columns))


@given(prompt=ids, standalone=ids)
def test_a_run_agrees_token_by_token(prompt: list[int], standalone: list[int]) -> None:
    start, end, shift = longest_run(prompt, standalone)
    assert 0 <= start <= end <= len(prompt)
    assert prompt[start:end] == standalone[start + shift : end + shift]


@given(st.integers(1, 60), ids, ids, st.integers(0, 9), st.integers(0, 9))
def test_what_differs_at_the_borders_only_is_found(
    length: int, head: list[int], tail: list[int], lost_head: int, lost_tail: int
) -> None:
    standalone = list(range(100, 100 + length))
    kept = standalone[lost_head : length - lost_tail]
    start, end, shift = longest_run([*head, *kept, *tail], standalone)
    if len(kept) >= 4 * 2:
        assert (end - start, start) == (len(kept), len(head))
        assert start + shift == lost_head


@given(st.integers(50, 200), st.integers(10, 20))
def test_a_difference_inside_leaves_the_longer_side(length: int, at: int) -> None:
    standalone = list(range(length))
    prompt = [*standalone[:at], -1, -1, -1, *standalone[at:]]
    start, end, shift = longest_run(prompt, standalone)
    assert (end - start, shift) == (length - at, -3)


def test_borders_that_merged_with_neighbours_are_left_out() -> None:
    prompt = tokens((9, 0, 3), (11, 3, 5), (12, 5, 7), (8, 7, 9))
    span = snap(PLACED, (10, 11, 12, 13), prompt)
    assert span is not None
    assert (span.start, span.end, span.origin) == (1, 3, 0)


def test_tokens_of_one_character_share_its_region() -> None:
    prompt = tokens((9, 0, 2), (1, 2, 5), (2, 2, 5), (3, 2, 5), (4, 5, 8), (9, 8, 9))
    span = snap(PLACED, (1, 2, 3, 4), prompt)
    assert span is not None
    assert (span.start, span.end, span.origin) == (1, 5, 1)


def test_no_token_in_common_is_no_span() -> None:
    prompt = tokens((9, 0, 2), (7, 2, 8), (9, 8, 9))
    assert snap(PLACED, (1, 2), prompt) is None
    assert snap(PLACED, (), prompt) is None


def test_tokens_of_an_earlier_segment_are_not_taken() -> None:
    prompt = tokens((9, 0, 2), (1, 2, 5), (2, 5, 8))
    span = snap(PLACED, (1, 2), prompt, not_before=2)
    assert span is not None
    assert (span.start, span.end, span.origin) == (2, 3, 1)
