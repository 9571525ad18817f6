"""Plans: pure, complete, and the same whatever is cached (laws 5 and 8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import Prompt, Segment, SegmentSpan
from hypic_agents.errors import InvalidPolicy
from hypic_agents.runtime.plan import LiveSpan, Plan, ReusedSpan, make_plan
from hypic_agents.runtime.policy import PRESETS, ReusePolicy, parse_policy
from hypic_agents.runtime.seam import MIN_INTERIOR


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    """Prompts with spans whose borders may differ from the standalone tokens by a few."""
    ids: list[int] = []
    spans: list[SegmentSpan] = []
    for i in range(draw(st.integers(0, 6))):
        ids.extend(draw(st.lists(st.integers(0, 9), max_size=5)))
        standalone = tuple(draw(st.lists(st.integers(0, 99), min_size=1, max_size=80)))
        lost_head = draw(st.integers(0, min(3, len(standalone) - 1)))
        lost_tail = draw(st.integers(0, min(2, len(standalone) - 1 - lost_head)))
        extra = draw(st.integers(0, 2)) if lost_head else 0
        ids.extend([500] * (lost_head + extra))
        start = len(ids)
        ids.extend(standalone[lost_head : len(standalone) - lost_tail])
        kind = "system" if i == 0 and draw(st.booleans()) else "document"
        if len(ids) > start:
            spans.append(SegmentSpan(Segment(str(standalone), kind), standalone, start, len(ids), start - lost_head))
        ids.extend([501] * lost_tail)
    ids.extend(draw(st.lists(st.integers(0, 9), min_size=1, max_size=9)))
    return Prompt(tuple(ids), tuple(spans))


policies = st.one_of(
    st.sampled_from(list(PRESETS.values())),
    st.builds(
        ReusePolicy,
        head_seam=st.integers(0, 40),
        tail_seam=st.integers(0, 6),
        min_segment_len=st.integers(0, 40),
        condition_on_system=st.booleans(),
        count_seam_twice=st.booleans(),
    ),
)


@given(prompts(), policies)
def test_law_8_each_position_is_covered_exactly_once(prompt: Prompt, policy: ReusePolicy) -> None:
    plan = make_plan(prompt, policy)
    covered = [p for span in plan.spans for p in range(span.start, span.end)]
    assert covered == list(range(len(prompt)))
    assert isinstance(plan.spans[-1], LiveSpan)
    assert plan.num_live == len(prompt) - sum(s.end - s.start for s in plan.spans if isinstance(s, ReusedSpan))


@given(prompts(), policies)
def test_reused_positions_hold_exactly_the_tokens_that_were_built(prompt: Prompt, policy: ReusePolicy) -> None:
    for span in make_plan(prompt, policy).spans:
        if isinstance(span, ReusedSpan):
            assert prompt.token_ids[span.start : span.end] == span.build.token_ids[span.build.head :]
            assert span.build.is_prefix or span.end - span.start >= MIN_INTERIOR


@given(prompts(), policies)
def test_every_segment_is_noted_with_a_reason_where_it_is_live(prompt: Prompt, policy: ReusePolicy) -> None:
    plan = make_plan(prompt, policy)
    assert [note.span for note in plan.notes] == list(prompt.spans)
    for note in plan.notes:
        assert (note.reused is None) == bool(note.reason)


@given(prompts(), policies)
def test_a_plan_is_a_function_of_prompt_and_policy(prompt: Prompt, policy: ReusePolicy) -> None:
    assert make_plan(prompt, policy) == make_plan(prompt, policy)


@given(prompts())
def test_conditioned_builds_name_their_prefix(prompt: Prompt) -> None:
    plan = make_plan(prompt, PRESETS["hypic"])
    prefixes = [b for b in plan.builds if b.is_prefix]
    for build in plan.builds:
        if not build.is_prefix:
            assert build.prefix_ids == (prefixes[0].token_ids if prefixes else ())


@given(prompts())
def test_exact_reuses_nothing(prompt: Prompt) -> None:
    plan: Plan = make_plan(prompt, PRESETS["exact"])
    assert plan.spans == (LiveSpan(0, len(prompt)),)


def test_policies_are_parsed_and_bad_ones_refused() -> None:
    policy = parse_policy("hypic:head_seam=4,condition_on_system=false")
    assert (policy.head_seam, policy.condition_on_system, policy.compose) == (4, False, "transition")
    for spec in ("nope", "hypic:head_seam", "hypic:head_seam=-1", "hypic:colour=3", "hypic:compose=maybe",
                 "hypic:head_seam=true", "exact:prefix=true", "hypic:head_seam=x"):  # fmt: skip
        with pytest.raises(InvalidPolicy):
            parse_policy(spec)
