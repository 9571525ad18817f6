"""Plans: pure, complete, and the same whatever is cached (laws 5 and 8)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import Prompt, Segment, SegmentKind, SegmentSpan
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
        first = ["system"] if i == 0 else []
        kind = draw(st.sampled_from([*first, "document", "tool", "turn"]))
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
    st.builds(
        ReusePolicy,
        head_seam=st.integers(0, 12),
        head_seam_by_kind=st.dictionaries(st.sampled_from(["tool", "document"]), st.integers(0, 40)),
        head_seam_share=st.sampled_from([0.0, 0.1, 0.5]),
        head_seam_max=st.integers(0, 40),
        first_seam=st.integers(0, 40),
        condition_on_system=st.booleans(),
        lead_max=st.sampled_from([0, 2, 40]),
        piece_len=st.sampled_from([0, 8, 16]),
        recompute_pointed=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
        recompute_max_len=st.sampled_from([16, 256]),
    ),
)


@given(prompts(), policies)
def test_law_8_each_position_is_covered_exactly_once(prompt: Prompt, policy: ReusePolicy) -> None:
    plan = make_plan(prompt, policy)
    covered = [p for span in plan.spans for p in range(span.start, span.end)]
    assert covered == list(range(len(prompt)))
    assert isinstance(plan.spans[-1], LiveSpan)
    assert plan.num_live == len(prompt) - sum(s.end - s.start for s in plan.spans if isinstance(s, ReusedSpan))
    assert [p for note in plan.notes for p in note.pieces] == [s for s in plan.spans if isinstance(s, ReusedSpan)]


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


def reuses_no_more(prompt: Prompt, wide: ReusePolicy, narrow: ReusePolicy) -> bool:
    """In segments that the narrower seams leave anything of: others may lie within a border that differs here."""
    for more, less in zip(make_plan(prompt, narrow).notes, make_plan(prompt, wide).notes, strict=True):
        kept = {p for one in more.pieces for p in range(one.start, one.end)}
        if kept and not kept.issuperset(p for one in less.pieces for p in range(one.start, one.end)):
            return False
    return True


@given(prompts(), policies, st.data())
def test_widening_never_reuses_more(prompt: Prompt, policy: ReusePolicy, data: st.DataObject) -> None:
    # What a question points at depends on what else could be reused, so it is compared in a test of its own.
    policy = policy.with_(recompute_pointed=0.0)
    name = data.draw(st.sampled_from(["head_seam", "head_seam_share", "head_seam_max", "first_seam", "tail_seam"]))
    wider: dict[str, Any] = {name: min(1.0, policy.head_seam_share + 0.2)}
    if name != "head_seam_share":
        wider = {name: getattr(policy, name) + data.draw(st.integers(0, 30))}
    assert reuses_no_more(prompt, policy.with_(**wider), policy)
    by_kind = {kind: width + 5 for kind, width in policy.head_seam_by_kind}
    assert reuses_no_more(prompt, policy.with_(head_seam_by_kind=by_kind), policy)


@given(prompts(), policies)
def test_recomputing_what_is_pointed_at_changes_no_entry_and_keeps_to_its_budget(
    prompt: Prompt, policy: ReusePolicy
) -> None:
    plan, without = make_plan(prompt, policy), make_plan(prompt, policy.with_(recompute_pointed=0.0))
    assert set(plan.builds) <= set(without.builds)
    assert plan.num_live - without.num_live <= policy.recompute_pointed * len(prompt)


@given(prompts(), policies)
def test_seams_and_pointing_do_not_change_how_a_segment_is_built(prompt: Prompt, policy: ReusePolicy) -> None:
    """Plans cut whole segments alike wherever these stand, but for the first place if it has a seam of its own."""
    policy = policy.with_(first_seam=0, lead_max=0, recompute_pointed=0.0)
    turned = [span for span in prompt.spans if span.segment.kind != "system"][::-1]
    ids: list[int] = []
    spans = []
    for span in turned:
        ids.extend([7, 7])
        lead = len(ids) - span.start
        ids.extend(prompt.token_ids[span.start : span.end])
        spans.append(SegmentSpan(span.segment, span.token_ids, span.start + lead, span.end + lead, span.origin + lead))
    other = Prompt((*ids, 7), tuple(spans))
    if not policy.prefix:
        built = {build.digest for build in make_plan(prompt, policy).builds if not build.is_prefix}
        again = {build.digest for build in make_plan(other, policy).builds}
        assert built == again


def test_a_lead_is_what_stands_before_the_block() -> None:
    system, tool, sheet = (tuple(range(start, start + 30)) for start in (100, 200, 300))
    ids = (*system, 1, 2, *tool, 3, *tool, 4, 5, 6, *sheet, 7, *sheet, 8, 9)
    starts = (0, 32, 63, 96, 127)
    kinds: tuple[SegmentKind, ...] = ("system", "tool", "tool", "document", "document")
    prompt = Prompt(
        ids,
        tuple(
            SegmentSpan(Segment(kind, kind), ids[at : at + 30], at, at + 30, at)
            for kind, at in zip(kinds, starts, strict=True)
        ),
    )
    for most, leads in ((0, [(), ()]), (2, [(1, 2), (5, 6)]), (9, [(1, 2), (4, 5, 6)])):
        plan = make_plan(prompt, PRESETS["hypic"].with_(lead_max=most))
        builds = plan.builds[1:]
        assert builds[0] == builds[1]
        assert builds[2] == builds[3]
        for build, segment, lead in zip(builds[::2], (tool, sheet), leads, strict=True):
            assert build.token_ids == lead + segment[:28]
            assert build.head == build.map_from == len(lead) + 8


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
