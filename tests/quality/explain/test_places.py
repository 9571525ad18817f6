"""Where needed facts stand: checked against the prompt's own tokens and the plan, token by token."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hypic_agents.core import Segment
from hypic_agents.quality.explain.breakdown import NOT_FOUND, distance
from hypic_agents.quality.explain.places import place_facts
from hypic_agents.quality.questions import Item, make_items
from hypic_agents.quality.worlds import TASKS
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.plan import LiveSpan, Plan


def live_positions(plan: Plan) -> set[int]:
    return {at for span in plan.spans if isinstance(span, LiveSpan) for at in range(span.start, span.end)}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("policy", ["hypic", "hypic:head_seam=32,condition_on_system=false", "addition"])
def test_the_value_stands_where_it_is_said_to(engine: Engine, task: str, policy: str) -> None:
    for item in make_items(engine, task, 6, seed=2):
        assert item.question is not None
        plan = engine.plan(item.prompt, policy)
        live = live_positions(plan)
        behind = [span for span in item.prompt.spans if span.segment.kind != "system"]
        places = place_facts(item, plan, engine.tokenizer)
        assert [place.position for place in places] == sorted(place.position or 0 for place in places)
        for place in places:
            assert place.position is not None and place.length is not None and place.value is not None
            span = behind[place.order - 1]
            assert (span.segment.source_id, span.segment.kind) == (place.source_id, place.kind)
            assert (place.segments, place.segment_len) == (len(behind), len(span.token_ids))
            assert place.statement is not None and place.statement in span.segment.text
            ids = item.prompt.token_ids
            assert place.value in engine.tokenizer.decode(ids[place.position : place.position + place.length])
            # Not a token too many on either side.
            for fewer in (slice(1, None), slice(None, -1)):
                cut = ids[place.position : place.position + place.length][fewer]
                assert place.value not in engine.tokenizer.decode(cut)
            assert span.start <= place.position < span.end
            assert place.to_live == next(n for n in range(len(ids)) if place.position + n in live)
            assert place.to_seam is not None and place.statement_to_seam is not None
            assert place.statement_to_seam <= place.to_seam
            seam_end = place.position - place.to_seam
            assert seam_end not in live and (seam_end - 1 in live)
            assert all(at in live for at in range(span.start, seam_end))
        expected = {item.documents[index].source_id for index in item.question.needs}
        assert expected == {place.source_id for place in places if place.kind != "tool"}


def test_called_tools_are_needed_by_their_specs(engine: Engine) -> None:
    for item in make_items(engine, "multi_tool", 4, seed=0):
        places = place_facts(item, engine.plan(item.prompt, "hypic"), engine.tokenizer)
        assert item.question is not None
        assert 1 <= len(places) <= 3
        for place in places:
            assert f'"name": "{place.value}"' in item.question.answer
            assert (place.kind, place.style, place.source_id) == ("tool", "tool", place.value)


def test_what_is_live_has_no_distance(engine: Engine) -> None:
    item = make_items(engine, "two_hop", 1, seed=0)[0]
    for place in place_facts(item, engine.plan(item.prompt, "exact"), engine.tokenizer):
        assert not place.composed
        assert place.reason == "policy is exact"
        assert (place.to_seam, place.to_live) == (None, 0)
        assert place.position is not None


def test_a_fact_inside_the_head_seam_is_before_its_end(engine: Engine) -> None:
    items = make_items(engine, "single", 16, seed=0)
    wide = [place_facts(item, engine.plan(item.prompt, "hypic:head_seam=60"), engine.tokenizer)[0] for item in items]
    inside = [place for place in wide if place.to_seam is not None and place.to_seam < 0]
    assert inside
    assert all(place.composed and place.to_live == 0 for place in inside)


def test_pieces_next_to_each_other_are_one_run(engine: Engine) -> None:
    item = make_items(engine, "single", 1, seed=0)[0]
    whole = place_facts(item, engine.plan(item.prompt, "hypic"), engine.tokenizer)
    cut = place_facts(item, engine.plan(item.prompt, "hypic:piece_len=16"), engine.tokenizer)
    assert whole == cut


def test_a_fact_that_is_not_there_is_said_to_be_not_found(engine: Engine) -> None:
    item = make_items(engine, "single", 1, seed=0)[0]
    assert item.question is not None
    needed = item.documents[item.question.needs[0]]
    value = item.question.answer
    hidden = needed.text.replace(value, "?" * len(value))
    documents = [replace(d, text=hidden) if d is needed else d for d in item.documents]
    prompt = engine.builder.build(documents=documents, question=item.question.text)
    (place,) = place_facts(replace(item, prompt=prompt), engine.plan(prompt, "hypic"), engine.tokenizer)
    assert (place.source_id, place.position, place.value, place.to_seam) == (needed.source_id, None, None, None)
    assert distance([place]) == NOT_FOUND


def test_a_prompt_without_a_question_needs_nothing_known(engine: Engine) -> None:
    prompt = engine.builder.build(documents=[Segment("A note.")], question="What?")
    assert place_facts(Item("single", prompt, (1,)), engine.plan(prompt, "hypic"), engine.tokenizer) == ()
