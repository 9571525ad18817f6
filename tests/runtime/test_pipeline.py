"""Assembly that begins before the last entry is there gives what one pass gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from hypic_agents.core import Prompt, SamplingParams, Scope, Segment, SegmentSpan
from hypic_agents.runtime.batch import Row
from hypic_agents.runtime.models.hybrid import ForwardResult, HybridModel
from hypic_agents.runtime.pipeline import leading_spans
from hypic_agents.runtime.request import Request
from hypic_agents.runtime.state import KVBuffer
from hypic_agents.runtime.workers.contract import BuildJob, Built
from hypic_agents.runtime.workers.local import LocalPool
from tests.runtime.models import FAMILIES, engine, hybrid, make_prompt, segment_ids

ANSWER = SamplingParams(max_tokens=8)
BROKEN = 1  # a token of no segment


class SlowPool(LocalPool):
    """Computes one job a poll, in the order given, and says that it has a worker to spare."""

    spare = True  # type: ignore[assignment]

    def __init__(self, family: str) -> None:
        super().__init__(hybrid(family), 32_768)
        self._jobs: list[BuildJob] = []
        self._busy = False

    def submit(self, jobs: Sequence[BuildJob]) -> None:
        self._jobs += jobs

    def poll(self) -> list[Built]:
        # Builder polls until there is nothing; a real pool has nothing until its workers have.
        self._busy = bool(self._jobs) and not self._busy
        return self.compute([self._jobs.pop(0)]) if self._busy else []


def prompt_of(seed: int, *, system: bool) -> Prompt:
    rng = random.Random(seed)
    parts = [segment_ids(rng, n) for n in (50, 130, 64, 90)]
    return make_prompt(parts, system=segment_ids(rng, 30) if system else ())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("system", [True, False])
@pytest.mark.parametrize("prefix_bytes", [0, 1 << 28])
def test_the_answer_is_that_of_one_pass(family: str, system: bool, prefix_bytes: int) -> None:
    prompt = prompt_of(3, system=system)
    expected = engine(family).generate(prompt, ANSWER)
    one = engine(family, prefix_bytes=prefix_bytes)
    one._prefill._builder._pool = SlowPool(family)
    request = one.submit(prompt, ANSWER)
    lengths: list[int] = []
    while not request.done:
        one.step()
        state = one._prefill.pipeline._states.get(request.id)
        if state is not None and (not lengths or state.length > lengths[-1]):
            lengths.append(state.length)
    assert len(lengths) >= 2, "it was assembled in several passes"
    assert request.completion is not None
    assert request.completion.token_ids == expected.token_ids
    assert request.completion.report.cold_tokens == expected.report.cold_tokens
    assert one._prefill.pipeline._states == {}
    again = one.generate(prompt, ANSWER)
    assert again.token_ids == expected.token_ids
    assert one.stats().pinned == 0


def test_a_cancelled_request_leaves_no_state() -> None:
    one = engine("qwen3_5")
    one._prefill._builder._pool = SlowPool("qwen3_5")
    request: Request = one.submit(prompt_of(4, system=True), ANSWER)
    while not one._prefill.pipeline._states:
        one.step()
    one.cancel(request)
    assert one._prefill.pipeline._states == {}
    assert one.stats().pinned == 0


def test_law_10_a_pass_ahead_that_fails_is_left_to_the_request_s_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything that continues a state fails once; and one request fails always."""
    prompts = [prompt_of(seed, system=True) for seed in (6, 7, 8)]
    prompts[1] = replace(prompts[1], token_ids=(*prompts[1].token_ids[:-1], BROKEN))
    expected = [engine().generate(prompt, ANSWER).token_ids for prompt in prompts]
    one = engine()
    one._prefill._builder._pool = SlowPool("qwen3_5")
    real, ahead = HybridModel.forward, one._prefill.pipeline
    failures: list[int] = []

    def forward(self: HybridModel, rows: Sequence[Row]) -> ForwardResult:
        result = real(self, rows)
        if any(row.past is not None and row.logits_from == 0 for row in rows):
            failures.append(len(rows))
            raise MemoryError("no room")
        if (result.batch.token_ids == BROKEN).any():
            raise RuntimeError("broken on purpose")
        return result

    monkeypatch.setattr(HybridModel, "forward", forward)
    requests = [one.submit(prompt, ANSWER) for prompt in prompts]
    while not all(request.done for request in requests):
        one.step()
    assert requests[1].error is not None and "broken" in str(requests[1].error)
    for i in (0, 2):
        assert requests[i].completion is not None
        assert requests[i].completion.token_ids == expected[i]
    assert 1 <= len(failures) <= len(requests), "none is tried again"
    assert "not assembled ahead: MemoryError: no room" in caplog.text
    assert ahead._states == {}
    assert one.stats().pinned == 0
    one.store.check_integrity()


def test_a_conversation_that_goes_on_is_assembled_ahead_too() -> None:
    opening = replace(prompt_of(9, system=True), scope=Scope())
    rng = random.Random(9)
    one, off = engine(), engine(prefix_bytes=0)
    first = one.generate(opening, ANSWER)
    ids, spans = [*opening.token_ids, *first.token_ids, 5], list(opening.spans)
    for length in (60, 80, 70):
        part = segment_ids(rng, length)
        spans.append(SegmentSpan(Segment(str(part)), part, len(ids), len(ids) + length, len(ids)))
        ids += [*part, 5, 6]
    turn = replace(opening, token_ids=(*ids, 7, 8, 9), spans=tuple(spans))
    one._prefill._builder._pool = SlowPool("qwen3_5")
    request = one.submit(turn, ANSWER)
    lengths: set[int] = set()
    while not request.done:
        one.step()
        state = one._prefill.pipeline._states.get(request.id)
        lengths |= set() if state is None else {state.length}
    assert len(lengths) >= 2, "it was assembled in several passes"
    assert request.completion is not None
    assert request.completion.report.prefix_tokens > len(opening)
    assert request.completion.token_ids == off.generate(turn, ANSWER).token_ids


def test_leading_spans_end_at_a_live_one() -> None:
    one = engine("qwen3_5")
    plan = one.plan(prompt_of(5, system=True))
    keys = [build.key(one.fingerprint) for build in plan.builds]
    assert leading_spans(plan, [], one.fingerprint) == 0
    found = [leading_spans(plan, keys[:n], one.fingerprint) for n in range(1, len(keys) + 1)]
    assert found == sorted(found)
    assert found[-1] == len(plan.spans)
    for n, count in enumerate(found[:-1], start=1):
        assert plan.spans[count].build.key(one.fingerprint) == keys[n]  # type: ignore[union-attr]
    assert leading_spans(plan, keys[1:], one.fingerprint) == 0, "the first is missing"
    assert leading_spans(plan, keys[1:], one.fingerprint, plan.spans[0].end) == len(plan.spans), "and not needed"


@pytest.mark.parametrize("assembled", ["at once", "in several passes"])
def test_keys_and_values_are_not_moved_for_the_rest_of_the_prompt_nor_for_the_first_tokens(assembled: str) -> None:
    one = engine("qwen3_5")
    if assembled != "at once":
        one._prefill._builder._pool = SlowPool("qwen3_5")
    request = one.submit(prompt_of(5, system=True), ANSWER)
    places: set[int] = set()
    while not request.done:
        one.step()
        state = request.state or one._prefill.pipeline._states.get(request.id)
        if state is not None:
            buffers = [layer for layer in state.layers if isinstance(layer, KVBuffer)]
            assert all(len(b.keys) == len(b.values) == len(request.prompt) + ANSWER.max_tokens for b in buffers)
            places.add(buffers[0].keys.data_ptr())
    assert len(places) == 1
