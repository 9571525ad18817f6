"""Salts and conditions: no scope meets another, nothing invalidated is matched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import Scope, Segment
from hypic_agents.errors import InvalidInput
from hypic_agents.integrations.sglang.known import Condition, Salts, SentSegments, digest, prefix_digests

scopes = st.builds(Scope, st.sampled_from(["default", "acme", "other"]), st.frozensets(st.sampled_from("ab")))
NOTE = Segment("a note", source_id="notes", version="2")


@given(scopes, scopes)
def test_scopes_share_a_salt_only_with_themselves(one: Scope, other: Scope) -> None:
    salts = Salts()
    assert (salts.salt(one, [NOTE]) == salts.salt(other, [NOTE])) == (one == other)
    assert (salts.salt(one, []) is None) == (one == Scope())


def test_a_segment_with_a_scope_of_its_own_takes_part() -> None:
    salts = Salts()
    private = replace(NOTE, scope=Scope("default", frozenset({"board"})))
    assert salts.salt(Scope(), [private]) not in (None, salts.salt(private.scope, [private]))


def test_the_names_of_tenants_are_not_sent() -> None:
    assert "acme" not in (Salts().salt(Scope("acme"), []) or "")


@pytest.mark.parametrize(
    ("condition", "scope", "segments", "covered"),
    [
        (Condition(source_id="notes"), Scope(), [NOTE], True),
        (Condition(source_id="notes"), Scope(), [], False),
        (Condition(source_id="notes", version_before="3"), Scope(), [NOTE], True),
        (Condition(source_id="notes", version_before="2"), Scope(), [NOTE], False),
        (Condition(source_id="notes", tenant="acme"), Scope(), [NOTE], False),
        (Condition(source_id="notes", tenant="acme"), Scope("acme"), [NOTE], True),
        (Condition(tenant="acme"), Scope("acme"), [], True),
        (Condition(tenant="acme"), Scope(), [NOTE], False),
        (Condition(group="a"), Scope("acme", frozenset("ab")), [], True),
        (Condition(group="a"), Scope("acme", frozenset("b")), [], False),
    ],
)
def test_an_invalidation_changes_the_salt_of_what_it_covers(
    condition: Condition, scope: Scope, segments: list[Segment], covered: bool
) -> None:
    salts = Salts()
    before = salts.salt(scope, segments)
    salts.invalidate(condition)
    after = salts.salt(scope, segments)
    assert (before != after) is covered
    salts.invalidate(condition)
    assert (salts.salt(scope, segments) != after) is covered


@pytest.mark.parametrize("which", [{}, {"version_before": "2"}])
def test_conditions_need_something_to_go_by(which: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        Condition(**which)


def test_the_oldest_is_forgotten_first() -> None:
    sent = SentSegments(2)
    for name in (b"a", b"b", b"a", b"c"):
        sent.add(name, NOTE)
    assert [name in sent for name in (b"a", b"b", b"c")] == [True, False, True]
    assert sent.covered(Condition(source_id="notes")) == {b"a", b"c"}
    sent.discard([b"a", b"x"])
    assert len(sent) == 1


@given(st.lists(st.text(max_size=3), max_size=3), st.lists(st.text(max_size=3), max_size=3))
def test_digests_tell_texts_apart(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)


@given(st.lists(st.integers(0, 9), max_size=12), st.data())
def test_prefixes_have_one_name_however_they_are_reached(ids: list[int], data: st.DataObject) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=4)))
    names = list(prefix_digests(ids, ends))
    assert names == [next(iter(prefix_digests(ids, [end]))) for end in ends]
