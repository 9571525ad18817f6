"""Seams: how wide, and where interiors are cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import Segment, SegmentKind, SegmentSpan
from hypic_agents.runtime.policy import parse_policy
from hypic_agents.runtime.seam import MIN_INTERIOR, Interior, cut, find_interior, head_width


def span(length: int, kind: SegmentKind = "document") -> SegmentSpan:
    return SegmentSpan(Segment("", kind), tuple(range(length)), 7, 7 + length, 7)


@pytest.mark.parametrize(
    ("changes", "kind", "length", "first", "width"),
    [
        ("head_seam=8", "document", 100, True, 8),
        ("head_seam_by_kind=tool=16+file=2", "tool", 100, False, 16),
        ("head_seam_by_kind=tool=16+file=2", "file", 100, False, 2),
        ("head_seam_by_kind=tool=16+file=2", "document", 100, False, 8),
        ("head_seam_share=0.25", "document", 28, False, 8),
        ("head_seam_share=0.25", "document", 100, False, 25),
        ("head_seam_share=0.25,head_seam_max=12", "document", 100, False, 12),
        ("head_seam_share=0.25,head_seam_by_kind=tool=40", "tool", 100, False, 40),
        ("first_seam=32", "document", 100, True, 32),
        ("first_seam=32", "document", 100, False, 8),
        ("first_seam=4", "document", 100, True, 8),
    ],
)
def test_head_seams(changes: str, kind: SegmentKind, length: int, first: bool, width: int) -> None:
    policy = parse_policy(f"hypic:{changes}")
    assert head_width(span(length, kind), policy, first=first) == width
    interior = find_interior(span(length, kind), policy, first=first)
    assert interior == Interior(width, length - 2, 7 + width, 7 + length - 2)


@given(st.integers(0, 90), st.integers(MIN_INTERIOR, 200), st.integers(8, 64))
def test_pieces_cover_the_interior_once_and_none_is_too_short(head: int, length: int, piece_len: int) -> None:
    pieces = cut(Interior(head, head + length, head + 5, head + length + 5), piece_len)
    assert [i for piece in pieces for i in range(piece.head, piece.stop)] == list(range(head, head + length))
    for piece in pieces:
        assert piece.start - piece.head == piece.end - piece.stop == 5
        assert MIN_INTERIOR <= piece.stop - piece.head < piece_len + 2 * MIN_INTERIOR
    assert all(piece.head % piece_len == 0 for piece in pieces[1:])


def test_policies_of_different_seams_share_the_inner_pieces() -> None:
    narrow, wide = (cut(Interior(head, 150, head, 150), 32) for head in (3, 40))
    assert narrow[2:] == wide[1:]
    assert cut(Interior(3, 150, 3, 150), 0) == (Interior(3, 150, 3, 150),)
