"""Plans: pure, complete, and the same whatever is cached (laws 5 and 8)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import Prompt, Scope, Segment, SegmentKind, SegmentSpan
from hypic_agents.errors import InvalidPolicy
from hypic_agents.runtime.cache.key import RunningDigest
from hypic_agents.runtime.plan import LiveSpan, Plan, ReusedSpan, make_plan
from hypic_agents.runtime.policy import PRESETS, ReusePolicy, parse_policy
from hypic_agents.runtime.seam import MIN_INTERIOR
from tests.runtime.models import make_prompt, segment_ids


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


SCOPES = [Scope("a"), Scope("a", frozenset({"hr"})), Scope("a", frozenset({"hr", "legal"})), Scope("b")]


def may_see(one: Scope, other: Scope) -> bool:
    """Whether who is in ``one`` is in ``other``, whatever its groups mean."""
    return one == other or other == Scope(one.tenant)


@st.composite
def scoped_prompts(draw: st.DrawFn) -> Prompt:
    prompt = draw(prompts())
    spans = tuple(
        replace(s, segment=replace(s.segment, scope=draw(st.sampled_from(SCOPES)), source_id=str(i)))
        for i, s in enumerate(prompt.spans)
    )
    return replace(prompt, spans=spans, scope=draw(st.sampled_from([None, *SCOPES])))


@given(scoped_prompts(), policies)
def test_law_6_who_finds_an_entry_may_see_all_that_shaped_it(prompt: Prompt, policy: ReusePolicy) -> None:
    plan = make_plan(prompt, policy)
    for note in plan.notes:
        for piece in note.pieces:
            build = piece.build
            if policy.prefix:
                before = [span for span in prompt.spans if span.end <= piece.end]
                scopes = [span.segment.scope for span in before] + ([prompt.scope] if prompt.scope else [])
            else:
                before = [prompt.spans[0], note.span] if build.prefix_ids else [note.span]
                scopes = [span.segment.scope for span in before]
            assert all(may_see(build.scope, scope) for scope in scopes)
            named = {build.source_id, *(source_id for source_id, _ in build.depends_on)}
            assert named >= {span.segment.source_id for span in before}


@given(prompts(), policies, st.sampled_from(SCOPES))
def test_one_scope_changes_nothing_but_itself(prompt: Prompt, policy: ReusePolicy, scope: Scope) -> None:
    spans = tuple(replace(span, segment=replace(span.segment, scope=scope)) for span in prompt.spans)
    plan, scoped = (make_plan(p, policy) for p in (prompt, replace(prompt, spans=spans, scope=scope)))
    assert [replace(build, scope=scope) for build in plan.builds] == list(scoped.builds)
    assert [replace(build.key("m"), scope=scope) for build in plan.builds] == [b.key("m") for b in scoped.builds]


@pytest.mark.parametrize(
    ("system", "document", "own", "expected", "conditioned", "led"),
    [
        (SCOPES[0], SCOPES[0], SCOPES[0], SCOPES[0], True, True),
        (SCOPES[1], SCOPES[0], None, SCOPES[1], True, True),
        (SCOPES[0], SCOPES[1], None, SCOPES[1], True, True),
        (SCOPES[0], SCOPES[0], SCOPES[1], SCOPES[1], True, True),
        (SCOPES[1], SCOPES[2], None, SCOPES[2], False, True),
        (SCOPES[3], SCOPES[0], SCOPES[3], SCOPES[0], False, False),
        (SCOPES[3], SCOPES[0], SCOPES[1], SCOPES[1], False, True),
    ],
)
def test_an_entry_is_conditioned_on_what_one_scope_may_see_with_it(
    system: Scope, document: Scope, own: Scope | None, expected: Scope, conditioned: bool, led: bool
) -> None:
    first, sheet = tuple(range(100, 130)), tuple(range(200, 230))
    prompt = Prompt(
        (*first, 1, 2, *sheet, 3),
        (
            SegmentSpan(Segment("first", "system", scope=system), first, 0, 30, 0),
            SegmentSpan(Segment("sheet", scope=document), sheet, 32, 62, 32),
        ),
        scope=own,
    )
    prefix, build = make_plan(prompt, PRESETS["hypic"]).builds
    assert (prefix.scope, build.scope) == (system, expected)
    assert build.prefix_ids == (first if conditioned else ())
    assert build.token_ids == ((1, 2) if led else ()) + sheet[:28]


@pytest.mark.parametrize("policy", ["hypic", "prefix"])
def test_what_stands_before_many_segments_is_hashed_once(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    real = RunningDigest.extend

    def extend(self: RunningDigest, token_ids: Sequence[int]) -> str:
        hashed.append(len(token_ids))
        return real(self, token_ids)

    monkeypatch.setattr(RunningDigest, "extend", extend)
    rng = random.Random(1)
    prompt = make_prompt([segment_ids(rng, 30) for _ in range(40)], system=segment_ids(rng, 900))
    plan = make_plan(prompt, PRESETS[policy])
    assert len(plan.builds) == 41
    assert len(prompt) * 0.9 < sum(hashed) <= 2 * len(prompt)
    again = [replace(build, prefix_digest="") for build in plan.builds]
    assert [build.key("m") for build in again] == [build.key("m") for build in plan.builds]


def test_a_lead_names_the_turn_that_it_is_part_of() -> None:
    turn, sheet = tuple(range(100, 130)), tuple(range(200, 230))
    said = Segment("turn", "turn", "chat", "3", SCOPES[1])
    prompt = Prompt(
        (9, *turn, 1, *sheet, 3),
        (
            SegmentSpan(said, turn, 1, 31, 1),
            SegmentSpan(Segment("sheet", scope=SCOPES[0]), sheet, 32, 62, 32),
        ),
    )
    (build,) = make_plan(prompt, PRESETS["hypic"].with_(lead_max=3)).builds
    assert (build.token_ids[:3], build.scope, build.depends_on) == ((128, 129, 1), SCOPES[1], (("chat", "3"),))
    (build,) = make_plan(prompt, PRESETS["hypic"].with_(lead_max=1)).builds
    assert (build.token_ids[:1], build.scope, build.depends_on) == ((1,), SCOPES[0], ())


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
