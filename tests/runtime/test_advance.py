"""Whatever goes wrong behind a pass: one request fails, and the others answer as if it had not been there."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import EmptyPrompt, HypicError, InvalidInput, ModelError
from hypic_agents.runtime.batch import LiveRun
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.request import Request
from hypic_agents.runtime.sampling import check_sampling
from hypic_agents.runtime.workers.contract import BuildJob, Built
from hypic_agents.runtime.workers.local import LocalPool
from tests.runtime.models import OnToken, engine, hybrid, make_prompt, segment_ids

ANSWER = SamplingParams(max_tokens=8)
WARM = SamplingParams(max_tokens=8, temperature=0.8, seed=5)


def prompt_of(seed: int, **changes: Any) -> Prompt:
    rng = random.Random(seed)
    return make_prompt([segment_ids(rng, n) for n in (40, 57)], system=segment_ids(rng, 20), **changes)


class Poisoned(OnToken):
    """A model whose logits behind one token are no numbers."""

    def forward(self, rows: Any) -> Any:
        result = self._model.forward(rows)
        for i, row in enumerate(rows):
            if any(isinstance(one, LiveRun) and self._token in one.token_ids for one in row.elements):
                result.logits[i, 3] = math.nan
        return result


class Trio:
    """Three requests of one engine, the middle one of which is to fail."""

    def __init__(self, victim: SamplingParams = ANSWER, **changes: Any) -> None:
        self.engine = engine()
        prompts = [prompt_of(1), prompt_of(9, **changes), prompt_of(2)]
        self.expected = [engine().generate(prompts[i], one).token_ids for i, one in ((0, ANSWER), (2, WARM))]
        params = (ANSWER, victim, WARM)
        self.requests = [self.engine.submit(p, one) for p, one in zip(prompts, params, strict=True)]

    @property
    def victim(self) -> Request:
        return self.requests[1]

    def run(self) -> HypicError:
        """The victim's error; the others have answered."""
        while not all(request.done for request in self.requests):
            self.engine.step()
        assert [tuple(self.requests[i].token_ids) for i in (0, 2)] == self.expected
        assert all(self.requests[i].error is None for i in (0, 2))
        assert self.engine.stats().pinned == 0
        assert self.victim.error is not None
        return self.victim.error


@pytest.mark.parametrize("where", ["prefill", "decode"])
@pytest.mark.parametrize("params", [ANSWER, WARM], ids=["greedy", "warm"])
def test_logits_that_are_no_numbers_fail_their_request(where: str, params: SamplingParams) -> None:
    question = (7, 8, 1001)
    ids = engine().generate(prompt_of(9, question=question), params).token_ids
    trio = Trio(params, question=question)
    token = 1001 if where == "prefill" else next(one for one in ids if all(one not in e for e in trio.expected))
    broken: Any = Poisoned(hybrid("qwen3_5"), token)
    if where == "prefill":
        trio.engine._prefill._model = broken
    else:
        trio.engine.model = broken
    assert isinstance(error := trio.run(), ModelError)
    assert "not finite" in str(error)
    assert len(trio.victim.token_ids) == (0 if where == "prefill" else ids.index(token) + 1)


def test_a_draw_that_fails_touches_no_other() -> None:
    trio = Trio(WARM)
    trio.engine.step()
    source: Any = object()
    trio.victim.generator = source
    assert "TypeError" in str(trio.run())


class BadGrammar:
    """Fails in one of its methods."""

    def __init__(self, method: str) -> None:
        self._method = method
        self.closing = self.ended = False

    @property
    def forced(self) -> int | None:
        if self._method == "forced":
            raise RuntimeError("no such state")
        return None

    def allows(self, token_id: int) -> bool:
        if self._method == "allows":
            raise RuntimeError("no such state")
        return True

    @property
    def num_settled(self) -> int:
        raise RuntimeError("no such state")

    def accept(self, token_id: int, left: int) -> int:
        if self._method == "accept":
            raise RuntimeError("no such state")
        return token_id


@pytest.mark.parametrize("method", ["forced", "allows", "accept", "num_settled"])
def test_a_grammar_that_fails_touches_no_other(method: str) -> None:
    trio = Trio()
    trio.engine.step()
    grammar: Any = BadGrammar(method)
    trio.victim.grammar = grammar
    assert "no such state" in str(trio.run())


def test_an_audit_that_cannot_be_recorded_costs_no_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no memory is left")

    one = engine()
    monkeypatch.setattr(one._auditor, "record", broken)
    assert one.generate(prompt_of(1), ANSWER).token_ids == engine().generate(prompt_of(1), ANSWER).token_ids
    assert "no memory is left" in caplog.text


@pytest.mark.parametrize("temperature", [-1.0, 1e-40, math.inf, math.nan])
def test_temperatures_that_no_float32_can_divide_by_are_refused(temperature: float) -> None:
    with pytest.raises(InvalidInput, match=rf"temperature={temperature}: use 0 \(greedy\), or a number from 1e-08 on"):
        check_sampling(SamplingParams(temperature=temperature))


def test_the_lowest_temperature_is_greedy() -> None:
    one = engine()
    cold = SamplingParams(max_tokens=8, temperature=1e-8, seed=1)
    assert one.generate(prompt_of(1), cold).token_ids == one.generate(prompt_of(1), ANSWER).token_ids


def test_ctrl_c_between_admission_and_builds_leaves_a_usable_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    one = engine()
    request = one.submit(prompt_of(1), ANSWER)
    with monkeypatch.context() as patch:
        patch.setattr(one._cold, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.step()
    other = one.generate(prompt_of(2), ANSWER)
    while not request.done:
        one.step()
    assert tuple(request.token_ids) == engine().generate(prompt_of(1), ANSWER).token_ids
    assert other.token_ids == engine().generate(prompt_of(2), ANSWER).token_ids


@pytest.mark.parametrize("how", ["refused", "interrupted"])
def test_a_batch_that_breaks_leaves_no_request_behind(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = engine()
    if how == "refused":
        with pytest.raises(EmptyPrompt):
            one.generate_batch([prompt_of(1), Prompt(())], ANSWER)
    else:
        step = one.step
        calls = iter([step, step])

        def interrupted() -> Any:
            for call in calls:
                return call()
            raise KeyboardInterrupt

        monkeypatch.setattr(one, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.generate_batch([prompt_of(1), prompt_of(2)], ANSWER)
    assert one._schedule.idle or how == "refused"
    assert all(request.done for request in one._schedule.unfinished)
    assert one.stats().pinned == 0


class NoPrefix(LocalPool):
    """A pool that cannot build what others are built behind."""

    def compute(self, jobs: Sequence[BuildJob]) -> list[Built]:
        bad = [Built(job, None, "local", 0.0, error=MemoryError("no room")) for job in jobs if job.is_prefix]
        return bad + super().compute([job for job in jobs if not job.is_prefix])


def test_a_prefix_that_cannot_be_built_says_why() -> None:
    sound = engine()
    pool = NoPrefix(sound.model, 32_768)
    one = Engine(sound.model, sound.tokenizer, sound.fingerprint, sound.config, pool=pool)
    with pytest.raises(HypicError, match="MemoryError: no room"):
        one.generate(prompt_of(1), ANSWER)
    assert one.stats().pinned == 0


class Starting(LocalPool):
    """A pool whose workers get ready while somebody waits for them and others use the engine."""

    def __init__(self, model: HybridModel) -> None:
        super().__init__(model, 32_768)
        self.engine: Engine | None = None
        self.ready = 0

    @property
    def settled(self) -> bool:
        return self.ready == 3

    def warm_up(self, timeout_s: float) -> int:
        assert timeout_s == 0, "it must not wait under the engine's lock"
        return self.ready

    def wait(self, timeout_s: float) -> None:
        assert self.engine is not None
        with ThreadPoolExecutor() as threads:
            assert threads.submit(self._use, self.engine).result()
        self.ready += 1

    @staticmethod
    def _use(engine: Engine) -> bool:
        """Whether the engine's lock is free, as another thread sees it."""
        free = engine._lock.acquire(timeout=5)
        if free:
            engine._lock.release()
        return free


def test_warming_up_keeps_nobody_from_the_engine() -> None:
    sound = engine()
    pool = Starting(sound.model)
    pool.engine = Engine(sound.model, sound.tokenizer, sound.fingerprint, sound.config, pool=pool)
    assert pool.engine.warm_up(60) == 3
