"""Builds in this process, and warming, take turns with requests that run."""

from __future__ import annotations

import random
import threading
from dataclasses import replace

import pytest

from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import EngineClosed
from hypic_agents.runtime.engine import Engine
from tests.runtime.models import Failing, engine, make_prompt, segment_ids

LONG = SamplingParams(max_tokens=64)


def cold_prompt(seed: int, parts: int = 6) -> Prompt:
    rng = random.Random(seed)
    return make_prompt([segment_ids(rng, 60) for _ in range(parts)], system=segment_ids(rng, 20))


def small_passes(**config: object) -> Engine:
    return engine(max_pass_tokens=50, prefix_bytes=0, **config)


def test_a_request_decodes_while_another_s_segments_are_built() -> None:
    one = small_passes()
    alone = one.generate(cold_prompt(1), LONG, "exact")
    running = one.submit(cold_prompt(1), LONG, "exact")
    one.step()
    cold = one.submit(cold_prompt(2), LONG)
    before = len(running.token_ids)
    while not cold.token_ids:
        one.step()
    assert len(running.token_ids) - before >= 6, "a token between any two of its passes"
    while not (running.done and cold.done):
        one.step()
    assert tuple(running.token_ids) == alone.token_ids
    assert tuple(cold.token_ids) == small_passes().generate(cold_prompt(2), LONG).token_ids


def test_a_short_request_does_not_wait_for_all_passes_of_a_long_one() -> None:
    one = small_passes()
    long, short = one.submit(cold_prompt(3, 12), LONG), one.submit(cold_prompt(4, 1), LONG)
    while not short.token_ids:
        one.step()
    assert not long.token_ids
    while not (long.done and short.done):
        one.step()
    assert one.stats().pinned == 0
    one.store.check_integrity()


@pytest.mark.parametrize("policy", ["hypic", "prefix"])
def test_requests_are_answered_while_an_engine_is_warmed(policy: str) -> None:
    one, other = small_passes(), small_passes()
    passes = one.warming([cold_prompt(5), cold_prompt(6)], policy)
    next(passes)
    answered = 0
    while True:
        answered += one.generate(cold_prompt(7), LONG, "exact").finish_reason == "length"
        try:
            next(passes)
        except StopIteration as end:
            made = end.value
            break
    assert answered >= 2
    assert made == other.warm([cold_prompt(5), cold_prompt(6)], policy) > 0
    assert one.warm([cold_prompt(5), cold_prompt(6)], policy) == 0
    assert one.generate(cold_prompt(6), LONG, policy).report.cold_tokens == 0
    assert one.stats().pinned == 0
    one.store.check_integrity()


def test_warming_that_is_given_up_leaves_nothing() -> None:
    one = small_passes()
    passes = one.warming([cold_prompt(8)])
    for _ in range(3):
        next(passes)
    passes.close()
    assert one.stats().pinned == 0
    assert one.generate(cold_prompt(9), LONG).finish_reason == "length"
    assert one.warm([cold_prompt(8)]) > 0, "the rest was not built"
    one.store.check_integrity()


def test_warming_ends_with_its_engine() -> None:
    one = small_passes()
    passes = one.warming([cold_prompt(10)])
    next(passes)
    one.close()
    with pytest.raises(EngineClosed):
        next(passes)


def test_warming_says_what_cannot_be_built() -> None:
    one = small_passes()
    bad = make_prompt([segment_ids(random.Random(11), 60), (999,) * 60])
    one.model = Failing(one.model, 999)  # type: ignore[assignment]
    one._prefill._builder._pool._model = one.model  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="broken on purpose"):
        one.warm([bad])
    assert one.stats().pinned == 0
    assert one.warm([cold_prompt(12)]) > 0


def test_a_thread_is_answered_while_another_warms() -> None:
    one = small_passes()
    events: list[str] = []

    def serve() -> None:
        one.generate(cold_prompt(13), replace(LONG, max_tokens=2), "exact")
        events.append("answered")

    server = threading.Thread(target=serve)
    passes = one._prefill.cold.have_come
    started = threading.Event()

    def watched(ticket: object) -> bool:
        if not started.is_set():
            started.set()
            server.start()
        return passes(ticket)  # type: ignore[arg-type]

    one._prefill.cold.have_come = watched  # type: ignore[method-assign]
    one.warm([cold_prompt(14, 60)])
    events.append("warm")
    server.join()
    assert events == ["answered", "warm"]
