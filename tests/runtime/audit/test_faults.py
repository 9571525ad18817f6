"""Injected faults are noticed within 200 requests of a stream and lead to a fallback; a healthy stream raises no alarm.

The bundled model answers questions about documents; one request in four is audited.
"""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from hypic_agents.completion import Completion
from hypic_agents.core import Prompt, SamplingParams, SegmentKind
from hypic_agents.quality.worlds import make_episode, render_messages
from hypic_agents.runtime.audit.fallback import WHOLE_POLICY
from hypic_agents.runtime.batch import ReusedRun, Row
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.models.hybrid import ForwardResult, HybridModel
from hypic_agents.runtime.state import AttentionPayload, LinearPayload, SegmentPayload

REQUESTS = 200
ANSWER = SamplingParams(max_tokens=8)


@functools.cache
def loaded() -> Engine:
    return Engine.load("tiny")


def fresh(model: Any = None, **config: Any) -> Engine:
    """An empty engine on the bundled model that audits a quarter of its requests when told to."""
    base = loaded()
    settings = EngineConfig(**({"audit_share": 0.25, "audit_in_background": False} | config))
    return Engine(model or base.model, base.tokenizer, base.fingerprint, settings)


@functools.cache
def stream() -> tuple[Prompt, ...]:
    """Questions about three documents in changing order, new documents every eight questions.

    One of the three counts as a tool, so that there are two kinds to tell apart.
    """
    rng = random.Random(3)
    prompts: list[Prompt] = []
    while len(prompts) < REQUESTS:
        episode = make_episode(
            rng, num_documents=3, facts_per_document=2, split="heldout", tasks=("single", "two_hop"), num_questions=8
        )
        kinds: dict[str, SegmentKind] = {d.text: "document" for d in episode.documents}
        kinds[episode.documents[0].text] = "tool"
        for question in episode.questions:
            documents = rng.sample(episode.documents, len(episode.documents))
            prompt = loaded().builder.build_chat(render_messages(episode, question), segments=documents)
            spans = tuple(
                replace(s, segment=replace(s.segment, kind=kinds.get(s.segment.text, s.segment.kind)))
                for s in prompt.spans
            )
            prompts.append(replace(prompt, spans=spans))
    return tuple(prompts[:REQUESTS])


def run(one: Engine, prompts: Sequence[Prompt]) -> Iterator[Completion]:
    """Answer the stream; audits run between requests, while the engine is idle."""
    for prompt in prompts:
        yield one.generate(prompt, ANSWER)
        one.run_audits()


def first_fallback(one: Engine, prompts: Sequence[Prompt]) -> tuple[int, Completion]:
    """The first request that a fallback kept something live for, and its number."""
    for number, done in enumerate(run(one, prompts)):
        if done.report.fallback:
            return number, done
    raise AssertionError("no fallback")


def payloads(one: Engine, prompts: Sequence[Prompt], kind: SegmentKind) -> list[SegmentPayload]:
    """What the store holds for segments of one kind, as it is in memory."""
    notes = [note for prompt in prompts for note in one.plan(prompt).notes if note.span.segment.kind == kind]
    found: dict[int, SegmentPayload] = {}
    for build in (piece.build for note in notes for piece in note.pieces):
        entry = one.store.acquire(build.key(one.fingerprint), build.token_ids)
        assert entry is not None and isinstance(entry.payload, SegmentPayload)
        found[id(entry.payload)] = entry.payload
        one.store.release(entry)
    return list(found.values())


def wrong_transition(payload: SegmentPayload) -> None:
    for layer in payload.layers:
        if isinstance(layer, LinearPayload) and layer.transition is not None:
            layer.transition.mul_(-1.0)


def wrong_state(payload: SegmentPayload) -> None:
    for layer in payload.layers:
        if isinstance(layer, LinearPayload):
            layer.end_state.copy_(layer.end_state.transpose(-1, -2).clone())


def wrong_position(payload: SegmentPayload) -> None:
    for layer in payload.layers:
        if isinstance(layer, AttentionPayload):
            layer.keys.copy_(layer.keys.roll(1, 0))


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("document", wrong_transition),
        ("document", wrong_state),
        ("document", wrong_position),
        ("tool", wrong_transition),
        ("tool", wrong_position),
        ("system", wrong_state),
    ],
)
def test_spoiled_entries_are_named_dropped_and_their_kind_falls_back(
    kind: SegmentKind, fault: Callable[[SegmentPayload], None], caplog: pytest.LogCaptureFixture
) -> None:
    one = fresh()
    prompts = stream()[:64]
    one.warm(prompts)
    with torch.inference_mode():
        for payload in payloads(one, prompts, kind):
            fault(payload)
    with caplog.at_level(logging.WARNING, "hypic_agents.audit"):
        number, done = first_fallback(one, prompts)
    assert number < len(prompts)
    assert done.report.fallback == (kind,)
    reasons = {span.reason for span in done.report.spans if span.kind == kind}
    assert all(reason.startswith(f"audit: the entry of {kind} segment") for reason in reasons)
    assert {span.state for span in done.report.spans if span.kind == kind} == {"live"}
    # Without the system segment the others are built alone.
    assert {s.state for s in done.report.spans if s.kind != kind} == {"cold" if kind == "system" else "hit"}
    assert f"policy hypic falls back: {kind} segments are computed live" in caplog.text
    assert "differs from its rebuild" in caplog.text
    metrics = one.metrics()
    assert metrics.get("hypic_audit_fallback", policy="hypic", kind=kind) == 1
    assert metrics.get("hypic_audit_corrupt_entries_total", policy="hypic", kind=kind) >= 1
    assert metrics.total("hypic_audit_corrupt_entries_total") == metrics.get(
        "hypic_audit_corrupt_entries_total", policy="hypic", kind=kind
    )
    # The plan is the same whatever the store holds: cold equals warm under the fallback too.
    one.store.evict(one.stats().held_bytes)
    assert one.generate(prompts[number], ANSWER).token_ids == done.token_ids
    # After a reset nothing spoiled is left to be served.
    one.reset_audit()
    again = one.generate(prompts[number], ANSWER)
    assert not again.report.fallback
    assert again.token_ids == fresh(audit_share=0.0).generate(prompts[number], ANSWER).token_ids
    one.store.check_integrity()
    assert one.stats().pinned == 0


class Misplacing:
    """A model whose every use of a reused run puts its keys one position too far: a rebuild cannot show it."""

    def __init__(self, model: HybridModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, rows: Sequence[Row]) -> ForwardResult:
        return self._model.forward([replace(row, elements=tuple(map(self._moved, row.elements))) for row in rows])

    def _moved(self, element: Any) -> Any:
        if not isinstance(element, ReusedRun) or element.payload.is_checkpoint:
            return element
        layers = tuple(
            replace(layer, keys=layer.keys.roll(1, 0)) if isinstance(layer, AttentionPayload) else layer
            for layer in element.payload.layers
        )
        return replace(element, payload=replace(element.payload, layers=layers))


def test_a_fault_of_the_code_falls_back_by_the_count_of_changed_answers() -> None:
    one = fresh(Misplacing(loaded().model))
    number, done = first_fallback(one, stream())
    assert number < REQUESTS
    assert "above the budget of 5 points" in next(s.reason for s in done.report.spans if s.reason)
    metrics = one.metrics()
    assert metrics.total("hypic_audit_corrupt_entries_total") == 0
    assert metrics.get("hypic_audits_total", policy="hypic", result="changed") >= 5


def test_after_a_fallback_answers_are_nearer_to_full_recompute_though_the_fault_goes_on() -> None:
    broken = Misplacing(loaded().model)
    one, unaudited, sound = fresh(broken, audit_share=1.0), fresh(broken, audit_share=0.0), fresh(audit_share=0.0)
    assert any(done.report.fallback for done in run(one, stream()[:80]))
    changed = {True: 0, False: 0}
    for prompt in stream()[80:120]:
        truth = sound.generate(prompt, ANSWER, "exact").token_ids
        for engine in (one, unaudited):
            changed[engine is one] += engine.generate(prompt, ANSWER).token_ids != truth
        one.run_audits()
    assert changed[False] >= 8
    assert changed[True] <= changed[False] / 2
    # The policy as it was is tried on the side: it is still broken, and the metric says so.
    assert one.metrics().get("hypic_audit_shadow_total", policy="hypic", result="changed") >= 1


@pytest.mark.slow
def test_a_healthy_stream_raises_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    one = fresh()
    with caplog.at_level(logging.WARNING, "hypic_agents.audit"):
        assert not any(done.report.fallback for done in run(one, stream()))
    assert not caplog.records
    metrics = one.metrics()
    audits = metrics.total("hypic_audits_total")
    assert 35 <= audits <= 65
    assert metrics.get("hypic_audits_total", policy="hypic", result="changed") <= 0.05 * audits + 1
    assert metrics.total("hypic_audit_fallback") == 0
    assert metrics.total("hypic_audit_corrupt_entries_total") == 0
    assert metrics.total("hypic_audit_failures_total") == 0
    assert one.stats().pinned == 0


def test_a_prefix_checkpoint_that_went_bad_turns_prefix_reuse_off() -> None:
    one = fresh(policy="prefix", audit_share=1.0)
    for prompt in stream()[:40]:
        one.generate(prompt, ANSWER)
        with torch.inference_mode():
            for slot in one.store._kept.values():  # type: ignore[attr-defined]
                for layer in slot.entry.payload.layers:
                    if isinstance(layer, AttentionPayload):
                        layer.values.zero_()
        done = one.generate(prompt, ANSWER)
        one.run_audits()
        if done.report.fallback:
            break
    else:
        raise AssertionError("no fallback")
    assert set(one._auditor.reasons(one.config.default_policy)) == {WHOLE_POLICY}
    assert one.generate(stream()[0], ANSWER).token_ids == fresh().generate(stream()[0], ANSWER, "exact").token_ids
