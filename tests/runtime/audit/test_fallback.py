"""Plans under a fallback are plans: pure, complete, and they say what fell back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.runtime.audit.fallback import (
    WHOLE_POLICY,
    approximate_kinds,
    effective_plan,
    keep_live,
    reused_kinds,
)
from hypic_agents.runtime.plan import LiveSpan, make_plan
from hypic_agents.runtime.policy import PRESETS, ReusePolicy
from tests.runtime.audit.prompts import KINDS, mixed_prompt

POLICIES = [*PRESETS.values(), ReusePolicy(name="pieces", piece_len=16)]


fallen_kinds = st.sets(st.sampled_from([*KINDS, "system", WHOLE_POLICY]))


@given(st.integers(0, 200), st.sampled_from(POLICIES), fallen_kinds, st.booleans())
def test_law_8_holds_under_any_fallback(seed: int, policy: ReusePolicy, kinds: set[str], system: bool) -> None:
    prompt = mixed_prompt(seed, system=system)
    fallen = dict.fromkeys(kinds, "it lost trust")
    plan = effective_plan(prompt, policy, fallen)
    assert plan == effective_plan(prompt, policy, fallen)
    assert [p for span in plan.spans for p in range(span.start, span.end)] == list(range(len(prompt)))
    assert isinstance(plan.spans[-1], LiveSpan)
    assert not any(isinstance(a, LiveSpan) and isinstance(b, LiveSpan) for a, b in pairwise(plan.spans))
    assert reused_kinds(plan).isdisjoint(kinds)
    assert plan.policy.name == policy.name
    assert sum(len(note.pieces) for note in plan.notes) == len(plan.builds)
    for note in plan.notes:
        if note.span.segment.kind in kinds:
            assert note.reused is None
            assert note.reason


def test_nothing_fallen_is_the_plain_plan() -> None:
    for policy in POLICIES:
        assert effective_plan(mixed_prompt(1), policy, {}) == make_plan(mixed_prompt(1), policy)


def test_the_other_kinds_keep_their_entries() -> None:
    prompt = mixed_prompt(3)
    plain, fallen = (effective_plan(prompt, PRESETS["hypic"], x) for x in ({}, {"tool": "it lost trust"}))
    kept = [note for note in plain.notes if note.span.segment.kind != "tool"]
    assert [note for note in fallen.notes if note.span.segment.kind != "tool"] == kept
    lost = [note for note in fallen.notes if note.span.segment.kind == "tool"]
    assert lost and {note.reason for note in lost} == {"audit: it lost trust"}


def test_without_a_trusted_system_segment_nothing_is_built_behind_it() -> None:
    plan = effective_plan(mixed_prompt(3), PRESETS["hypic"], {"system": "it lost trust"})
    assert plan.builds
    assert not any(build.prefix_ids or build.is_prefix or build.depends_on for build in plan.builds)
    assert plan.policy == PRESETS["hypic"]


@pytest.mark.parametrize(("policy", "kind"), [("prefix", "tool"), ("hypic", WHOLE_POLICY)])
def test_exact_takes_over_where_nothing_else_is_left(policy: str, kind: str) -> None:
    prompt = mixed_prompt(3)
    plan = effective_plan(prompt, PRESETS[policy], {kind: "it lost trust"})
    assert plan.spans == (LiveSpan(0, len(prompt)),)
    assert {note.reason for note in plan.notes} == {"audit: it lost trust"}
    assert not plan.policy.prefix


def test_exact_checkpoints_are_reused_but_never_approximate() -> None:
    plan = make_plan(mixed_prompt(5), PRESETS["hypic"])
    assert reused_kinds(plan) - approximate_kinds(plan) == {"system"}
    assert not approximate_kinds(make_plan(mixed_prompt(5), PRESETS["prefix"]))
    assert keep_live(plan, {}) == plan
