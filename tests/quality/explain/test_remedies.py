"""The ladder: what is tried for which policy, and that a trial changes reuse, never the prompt."""

from __future__ import annotations

import pytest

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.explain.remedies import ladder, trials
from hypic_agents.quality.questions import make_items
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.policy import PRESETS, parse_policy

HYPIC = parse_policy("hypic")
BY_KIND = "hypic:head_seam_by_kind=tool=16+file=40"
COMPOSING = [name for name, policy in PRESETS.items() if not (policy.exact or policy.prefix)]


def test_the_ladder_of_hypic() -> None:
    assert [remedy.name for remedy in ladder(HYPIC)] == [
        "head seam 8, alone",
        "head seam 16, conditioned",
        "head seam 16, alone",
        "head seam 32, conditioned",
        "head seam 32, alone",
        "head seam 64, conditioned",
        "head seam 64, alone",
        "tail seam 8",
        "tail seam 16",
        "one segment live",
        "needed segments live",
        "all live",
    ]


def test_inexact_composition_is_mended_by_itself_and_by_hypic() -> None:
    names = [remedy.name for remedy in ladder(parse_policy("addition"))]
    assert names[:4] == ["exact composition", "policy hypic", "head seam 0, conditioned", "head seam 8, alone"]
    assert [remedy.name for remedy in ladder(parse_policy("zero_state"))][:2] == [
        "exact composition",
        "head seam 8, alone",
    ]


@pytest.mark.parametrize("name", [*COMPOSING, "hypic:head_seam=16,tail_seam=12", "hypic:head_seam=100", BY_KIND])
def test_no_rung_is_the_policy_itself_and_none_is_tried_twice(name: str) -> None:
    policy = parse_policy(name)
    rungs = ladder(policy)
    assert len({remedy.name for remedy in rungs}) == len(rungs)
    changed = [remedy.policy.with_(name="") for remedy in rungs if remedy.live == "none"]
    assert len(set(changed)) == len(changed)
    assert policy.with_(name="") not in changed
    for p in changed:
        assert p.exact or (p.head_seam >= policy.head_seam and p.tail_seam >= policy.tail_seam)
        assert all(width >= p.head_seam for _, width in p.head_seam_by_kind)
    assert rungs[-1].policy.exact


@pytest.mark.parametrize("name", ["exact", "prefix"])
def test_what_cannot_change_an_answer_has_no_ladder(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        ladder(parse_policy(name))


@pytest.mark.parametrize("task", ["single", "multi_tool"])
def test_trials_make_segments_live_and_leave_the_tokens(engine: Engine, task: str) -> None:
    prompt = make_items(engine, task, 1, seed=0)[0].prompt
    sources = [span.segment.source_id for span in prompt.spans if span.segment.kind != "system"]
    needed = {sources[1], sources[4]}
    usual = engine.plan(prompt, HYPIC).num_live
    for remedy in ladder(HYPIC):
        made = list(trials(remedy, prompt, needed))
        assert {trial.prompt.token_ids for trial in made} == {prompt.token_ids}
        live = [
            {note.span.segment.source_id for note in engine.plan(trial.prompt, remedy.policy).notes if note.reused}
            for trial in made
        ]
        if remedy.live == "one":
            assert [trial.source_id for trial in made] == sources
            for trial, reused in zip(made, live, strict=True):
                assert set(sources) - reused == {trial.source_id}
                assert engine.plan(trial.prompt, remedy.policy).num_live > usual
        elif remedy.live == "needed":
            assert len(made) == 1
            assert set(sources) - live[0] == needed
        else:
            assert [trial.prompt for trial in made] == [prompt]
    system = [span for span in prompt.spans if span.segment.kind == "system"]
    assert all(trial.prompt.spans[: len(system)] == tuple(system) for trial in made)


def test_where_no_segment_is_needed_none_is_made_live(engine: Engine) -> None:
    prompt = make_items(engine, "not_stated", 1, seed=0)[0].prompt
    remedy = next(remedy for remedy in ladder(HYPIC) if remedy.live == "needed")
    assert list(trials(remedy, prompt, set())) == []
