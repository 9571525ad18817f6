"""Checkpoints in the engine: what they save, who may take them, and that no answer depends on them."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from hypic_agents.completion import Completion
from hypic_agents.core import Prompt, SamplingParams, Scope, Segment, SegmentSpan
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime import prefix_checkpoints
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.state import KVBuffer, LinearState
from tests.runtime.models import Failing, engine, hybrid, make_prompt, segment_ids

END = 2  # ends a message for the tokenizer of these engines
SAMPLING = SamplingParams(max_tokens=8)
ACME, OTHER = Scope("acme"), Scope("other")
AFTER_LAST = 1  # the last token of an answer was chosen, but not computed


def opening(seed: int = 0, scope: Scope = ACME, source_id: str = "", version: str = "1") -> Prompt:
    """A system text, two documents and a question, then the header of the answer."""
    rng = random.Random(seed)
    parts = [segment_ids(rng, n) for n in (40, 57)]
    prompt = make_prompt(parts, system=segment_ids(rng, 20), question=(7, 8, 9, END, 5, 6), scope=scope)
    named = [replace(s, segment=replace(s.segment, source_id=source_id, version=version)) for s in prompt.spans]
    return replace(prompt, spans=(prompt.spans[0], named[1], prompt.spans[2]), scope=scope)


def reply(prompt: Prompt, done: Completion, seed: int = 0, document: int = 0) -> Prompt:
    """The next prompt of a conversation, with another document in it if asked for."""
    rng = random.Random(f"{seed} {len(prompt)}")
    ids = [*prompt.token_ids, *done.token_ids, END, 5]
    spans = list(prompt.spans)
    if document:
        tokens = segment_ids(rng, document)
        segment = Segment(str(tokens), "document", scope=prompt.spans[0].segment.scope)
        spans.append(SegmentSpan(segment, tokens, len(ids), len(ids) + document, len(ids)))
        ids += tokens
    return replace(prompt, token_ids=(*ids, *segment_ids(rng, 7), END, 5, 6), spans=tuple(spans))


@dataclass
class Turn:
    """An answer, and the states behind its prompt: of a linear layer, or keys and values."""

    answer: Completion
    states: list[Tensor]


def talk(one: Engine, turns: int = 4, seed: int = 0, policy: str = "hypic", *, look: bool = True) -> list[Turn]:
    """A conversation in which every other turn brings a document.

    ``look`` takes the states as they are behind the prompt, which only an engine that nobody else steps can show.
    """
    prompt = opening(seed)
    made = []
    for turn in range(turns):
        request = one.submit(prompt, SAMPLING, policy)
        states = []
        while look and request.state is None:
            one.step()
        if look:
            assert request.state is not None
            states = [
                layer.recurrent_state.clone() if isinstance(layer, LinearState) else kv_of(layer, len(prompt))
                for layer in request.state.layers
            ]
        while not request.done:
            one.step()
        assert request.completion is not None
        made.append(Turn(request.completion, states))
        prompt = reply(prompt, request.completion, seed, document=30 * (turn % 2))
    return made


def kv_of(layer: KVBuffer, length: int) -> Tensor:
    return torch.cat((layer.keys[:length], layer.values[:length])).clone()


def check_same(ours: list[Turn], theirs: list[Turn]) -> None:
    """Equal answers do not say much, as random models have a favourite token; equal states do."""
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one.states, other.states, strict=True):
            assert (a - b).abs().max() <= 1e-4 * b.abs().max()
        assert one.answer.token_ids == other.answer.token_ids


def ids_of(answers: list[Completion]) -> list[tuple[int, ...]]:
    return [answer.token_ids for answer in answers]


@pytest.mark.parametrize(
    ("family", "layout"),
    [("qwen3_5", ""), ("qwen3_next", ""), ("qwen3_5_moe", ""), ("qwen3_5", "flll"), ("qwen3_5", "ll")],
)
def test_law_3_answers_do_not_depend_on_checkpoints(family: str, layout: str) -> None:
    one, off = engine(family, layout), engine(family, layout, prefix_bytes=0)
    expected = talk(off)
    check_same(talk(one), expected)
    check_same(talk(one), expected)  # warm now
    assert one.prefixes.stats().hits > 3
    assert off.prefixes.stats().inserts == 0
    one.prefixes.check_integrity()


@pytest.mark.parametrize("policy", ["paper_code", "addition", "last_state", "zero_state", "hypic:piece_len=16"])
def test_law_3_under_every_way_to_compose(policy: str) -> None:
    one, off = engine(), engine(prefix_bytes=0)
    talk(one)  # checkpoints of another way lie there too
    check_same(talk(one, policy=policy), talk(off, policy=policy))
    assert one.prefixes.stats().hits > 3


def test_a_question_that_points_elsewhere_takes_what_is_decided_alike() -> None:
    policy = "hypic:recompute_pointed=0.4"
    one, off = engine(), engine(prefix_bytes=0)
    check_same(talk(one, policy=policy), talk(off, policy=policy))


def test_the_report_says_what_came_from_a_checkpoint() -> None:
    one = engine()
    prompt = opening()
    first = one.generate(prompt, SAMPLING)
    assert first.report.prefix_tokens == 0
    second = one.generate(reply(prompt, first, document=40), SAMPLING)
    report = second.report
    assert report.prefix_tokens == len(prompt) + len(first.token_ids) - AFTER_LAST
    assert report.prompt_tokens == report.live_tokens + report.cold_tokens + report.reused_tokens
    assert report.reused_tokens == second.usage.cached_tokens == report.prefix_tokens
    assert [span.state for span in report.spans] == ["hit", "hit", "hit", "cold"]
    assert [span.composed_tokens for span in report.spans[:3]] == [20, 40, 57]
    assert all("checkpoint" in span.reason for span in report.spans[:3])
    assert report.spans[3].composed_tokens == report.cold_tokens == 30
    assert one.metrics().get("hypic_prefix_tokens_total", policy="hypic") == report.prefix_tokens
    assert one.metrics().get("hypic_prefix_checkpoints") == 4


def test_the_same_prompt_again_computes_the_answer_s_header() -> None:
    one = engine()
    prompt = opening()
    first, again = one.generate(prompt, SAMPLING), one.generate(prompt, SAMPLING)
    assert again.token_ids == first.token_ids
    assert (again.report.live_tokens, again.report.cold_tokens) == (2, 0)


def test_branches_of_a_conversation_share_its_beginning() -> None:
    one, off = engine(), engine(prefix_bytes=0)
    prompt = opening()
    first = one.generate(prompt, SAMPLING)
    branches = [reply(prompt, first, seed) for seed in (1, 2)]
    before = one.prefixes.stats().tokens
    answers = one.generate_batch(branches, SAMPLING)
    assert ids_of(answers) == ids_of(off.generate_batch(branches, SAMPLING))
    known = len(prompt) + len(first.token_ids) - AFTER_LAST
    assert [answer.report.prefix_tokens for answer in answers] == [known, known]
    ends = [len(b) + len(a.token_ids) - AFTER_LAST for b, a in zip(branches, answers, strict=True)]
    shared = next(i for i, (a, b) in enumerate(zip(*(b.token_ids for b in branches), strict=True)) if a != b)
    assert one.prefixes.stats().tokens == before + sum(ends) - known - shared
    assert one.generate(reply(branches[1], answers[1]), SAMPLING).report.prefix_tokens == ends[1]


def test_law_6_tenants_and_groups_take_nothing_of_each_other() -> None:
    one = engine()
    reports = [
        one.generate(opening(scope=scope), SAMPLING).report
        for scope in (ACME, OTHER, Scope("acme", frozenset({"legal"})), ACME)
    ]
    assert [report.prefix_tokens > 0 for report in reports] == [False, False, False, True]
    private = replace(opening(), scope=Scope("third"))
    assert one.generate(private, SAMPLING).report.prefix_tokens == 0
    assert one.generate(private, SAMPLING).report.prefix_tokens > 0


def test_a_prompt_of_nobody_in_particular_leaves_nothing() -> None:
    one = engine()
    prompt = Prompt((*segment_ids(random.Random(1), 60), END, 5, 6))
    for _ in range(2):
        assert one.generate(prompt, SAMPLING).report.reused_tokens == 0
    assert one.prefixes.stats().checkpoints == 0


@pytest.mark.parametrize(
    "call", [{"source_id": "doc", "version_before": "2"}, {"tenant": "acme"}, {"source_id": "doc", "tenant": "acme"}]
)
def test_law_6_nothing_invalidated_is_served(call: dict[str, str]) -> None:
    one = engine()
    prompt = opening(source_id="doc")
    first = one.generate(prompt, SAMPLING)
    one.generate(opening(scope=OTHER), SAMPLING)
    one.invalidate(**call)
    one.prefixes.check_integrity()
    assert one.generate(reply(prompt, first), SAMPLING).report.prefix_tokens == 0
    assert one.generate(opening(scope=OTHER), SAMPLING).report.prefix_tokens > 0
    one.invalidate(source_id="doc", version_before="0")
    assert one.generate(reply(prompt, first), SAMPLING).report.prefix_tokens > 0


def test_law_6_what_runs_while_it_is_invalidated_leaves_nothing() -> None:
    one = engine()
    prompt = opening(source_id="doc")
    request = one.submit(prompt, SAMPLING)
    one.step()
    one.step()
    one.invalidate(source_id="doc")
    while not request.done:
        one.step()
    assert request.completion is not None
    assert one.prefixes.stats().tokens == 0
    assert one.generate(reply(prompt, request.completion), SAMPLING).report.prefix_tokens == 0


def test_an_invalidation_of_the_store_itself_takes_the_checkpoints_along() -> None:
    one = engine()
    prompt = opening(source_id="doc")
    first = one.generate(prompt, SAMPLING)
    one.store.invalidate(source_id="doc")  # as an audit does, or another process on the same directory
    assert one.generate(reply(prompt, first), SAMPLING).report.prefix_tokens == 0
    assert one.generate(opening(), SAMPLING).report.prefix_tokens == 0
    one.invalidate(source_id="another")
    assert one.generate(opening(), SAMPLING).report.prefix_tokens > 0, "one's own invalidations are known"


@pytest.mark.parametrize("budget", [1, 150_000, 400_000])
def test_law_7_a_small_budget_holds_and_answers_stay(budget: int) -> None:
    tight, off = engine(prefix_bytes=budget), engine(prefix_bytes=0)
    for seed in (1, 2, 1):
        check_same(talk(tight, 2, seed), talk(off, 2, seed))
        tight.prefixes.check_integrity()
    stats = tight.prefixes.stats()
    assert stats.held_bytes <= budget
    assert stats.evictions + stats.rejected > 0


def test_a_cancelled_request_leaves_the_checkpoint_of_its_prompt_only() -> None:
    one = engine()
    request = one.submit(opening(), SamplingParams(max_tokens=50))
    for _ in range(4):
        one.step()
    one.cancel(request)
    assert request.state is None and request.continuation is None
    assert one.prefixes.stats().checkpoints == 1
    waiting = one.submit(opening(1), SAMPLING)
    one.cancel(waiting)
    one.step()
    assert one.prefixes.stats().checkpoints == 1
    one.prefixes.check_integrity()


def test_law_10_a_failing_pass_spoils_no_checkpoint() -> None:
    one, off = engine(), engine(prefix_bytes=0)
    prompts = [opening(seed) for seed in (1, 2)]
    first = one.generate_batch(prompts, SAMPLING)
    turns = [reply(prompt, done) for prompt, done in zip(prompts, first, strict=True)]
    victim = replace(turns[0], token_ids=(*turns[0].token_ids[:-3], 1001, END, 5, 6))
    broken: Any = Failing(hybrid("qwen3_5"), 1001)
    one.model = one._prefill._model = broken
    requests = [one.submit(prompt, SAMPLING) for prompt in (turns[0], victim, turns[1])]
    while not all(request.done for request in requests):
        one.step()
    assert requests[1].error is not None
    assert requests[1].state is None
    done = [requests[i].completion for i in (0, 2)]
    assert [d.token_ids for d in done if d is not None] == ids_of(off.generate_batch(turns, SAMPLING))
    assert all(d is not None and d.report.prefix_tokens > 0 for d in done)
    one.prefixes.check_integrity()


@pytest.mark.parametrize("name", ["take_snapshot", "draw_pages", "page_bytes"])
@pytest.mark.parametrize("failing_call", [1, 2, 3, 4])
def test_law_10_a_checkpoint_that_cannot_be_made_fails_no_request(
    name: str, failing_call: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two requests: calls 1 and 2 are for the ends of their messages, 3 and 4 for those of their answers."""
    one, off = engine(), engine(prefix_bytes=0)
    real, calls = getattr(prefix_checkpoints, name), count(1)

    def fail_once(*args: Any) -> Any:
        if next(calls) == failing_call:
            raise MemoryError("no room")
        return real(*args)

    prompts = [opening(seed) for seed in (1, 2)]
    with monkeypatch.context() as patched:
        patched.setattr(prefix_checkpoints, name, fail_once)
        answers = one.generate_batch(prompts, SAMPLING)
    assert ids_of(answers) == ids_of(off.generate_batch(prompts, SAMPLING))
    assert next(calls) == 5
    assert "not kept: MemoryError: no room" in caplog.text
    one.prefixes.check_integrity()
    stats = one.prefixes.stats()
    assert (stats.inserts, stats.rejected) == (3, 1)
    assert one.metrics().get("hypic_prefix_checkpoints") == 3
    assert one.stats().pinned == 0
    turns = [reply(prompt, done) for prompt, done in zip(prompts, answers, strict=True)]
    again = one.generate_batch(turns, SAMPLING)
    assert ids_of(again) == ids_of(off.generate_batch(turns, SAMPLING))
    assert all(done.report.prefix_tokens > 0 for done in again)
    one.prefixes.check_integrity()


def test_threads_that_talk_at_once_answer_as_alone() -> None:
    one = engine(prefix_bytes=600_000)
    expected = {seed: talk(engine(prefix_bytes=0), 2, seed, look=False) for seed in range(3)}
    got: dict[int, list[Turn]] = {}

    def work(seed: int) -> None:
        got[seed] = talk(one, 2, seed, look=False)
        one.invalidate(source_id=f"source {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, turns in expected.items():
        check_same(got[seed], turns)
    one.prefixes.check_integrity()


def test_segments_that_left_the_store_are_built_behind_the_prefix_again() -> None:
    one, off = engine(), engine(prefix_bytes=0)
    prompt = opening()
    first = one.generate(prompt, SAMPLING)
    one.store.evict(1 << 40)
    turn = reply(prompt, first, document=50)
    done = one.generate(turn, SAMPLING)
    assert done.report.prefix_tokens > len(prompt)
    assert done.token_ids == off.generate(turn, SAMPLING).token_ids


def test_closing_frees_them_and_a_negative_budget_is_refused() -> None:
    one = engine()
    one.generate(opening(), SAMPLING)
    one.close()
    assert one.prefixes.stats().held_bytes == 0
    with pytest.raises(InvalidInput, match="prefix_bytes=-1"):
        engine(prefix_bytes=-1)


@pytest.mark.parametrize("verb", ["score", "warm"])
def test_the_prefix_policy_s_later_checkpoints_stand_behind_what_is_before_them(verb: str) -> None:
    one = engine()
    prompt = opening()
    if verb == "warm":
        assert one.warm([prompt], "prefix") == 3
        assert one.warm([prompt], "prefix") == 0
    else:
        answer = segment_ids(random.Random(4), 5)
        for _ in range(2):
            cold, exact = (one.score([prompt], [answer], policy)[0] for policy in ("prefix", "exact"))
            assert (cold - exact).abs().max() < 1e-4
    done = one.generate(prompt, SAMPLING, "prefix")
    assert [span.state for span in done.report.spans] == ["hit"] * 3
    assert done.token_ids == one.generate(prompt, SAMPLING, "exact").token_ids
    one.store.check_integrity()
