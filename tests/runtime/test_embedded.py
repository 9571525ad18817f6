"""The embedded backend: one thread computes, everybody waits in their own way."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from hypic_agents.backend import ChatRequest
from hypic_agents.completion import StreamChunk
from hypic_agents.core import SamplingParams, Segment
from hypic_agents.errors import ContextOverflow, EngineClosed, HypicError, InvalidMessages, RequestTimeout
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.embedded import EmbeddedBackend
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.models.registry import TINY
from hypic_agents.runtime.shared import close_shared, shared_backend
from tests.runtime.models import engine

NOTES = [
    Segment(f"Notes {i}: the keeper of gate {i} is called Velmo, and it opens at {i} in the morning.") for i in (1, 2)
]


def ask(text: str = "Who keeps gate 2?", max_tokens: int = 12, **changes: Any) -> ChatRequest:
    content = "\n".join([*(note.text for note in NOTES), text])
    sampling = SamplingParams(max_tokens=max_tokens)
    return ChatRequest([{"role": "user", "content": content}], segments=NOTES, sampling=sampling, **changes)


@pytest.fixture
def backend() -> Iterator[EmbeddedBackend]:
    one = EmbeddedBackend(engine())
    yield one
    one.close()


def is_idle(backend: EmbeddedBackend) -> bool:
    """Whether no request runs; asked of the thread itself, so it is behind all that was told to it before."""
    return backend._running().call(lambda: not backend._running()._jobs and backend.engine._schedule.idle).result(30)


def wait_for_jobs(backend: EmbeddedBackend, count: int) -> None:
    driver = backend._running()
    while driver.call(lambda: len(driver._jobs)).result(30) < count:
        pass


def text_of(chunks: list[StreamChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def test_a_request_that_cannot_be_cancelled_cleanly_does_not_end_the_thread(
    backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("its worker cannot be reached")

    stream = backend.stream(ask(max_tokens=400))
    next(stream)
    with monkeypatch.context() as patch:
        patch.setattr(backend.engine, "cancel", broken)
        stream.close()  # type: ignore[attr-defined]
        driver = backend._running()
        assert driver.call(lambda: len(driver._jobs)).result(30) == 0
    assert "its worker cannot be reached" in caplog.text
    assert backend.generate(ask()).token_ids


async def test_all_four_ways_give_one_answer(backend: EmbeddedBackend) -> None:
    request = ask()
    expected = engine().generate(backend.prompt(request), request.sampling)
    whole = backend.generate(request)
    assert whole.token_ids == expected.token_ids
    assert (await backend.agenerate(request)).token_ids == expected.token_ids
    pieces = list(backend.stream(request))
    apieces = [chunk async for chunk in backend.astream(request)]
    for chunks in (pieces, apieces):
        assert text_of(chunks) == whole.text == expected.text
        assert sum((chunk.token_ids for chunk in chunks), ()) == expected.token_ids
        assert [chunk.completion is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_hints_never_change_the_prompt(backend: EmbeddedBackend) -> None:
    request = ask()
    bare = replace(request, segments=[])
    wrong = replace(
        request, segments=[Segment("keeper of gate 1 is called Velmo, and"), Segment("not there at all" * 4)]
    )
    prompts = [backend.prompt(one).token_ids for one in (request, bare, wrong)]
    assert prompts[0] == prompts[1] == prompts[2]
    assert len({backend.generate(replace(one, policy="exact")).token_ids for one in (request, bare, wrong)}) == 1


def test_segments_are_reused_in_another_order(backend: EmbeddedBackend) -> None:
    first = backend.generate(ask())
    turned = f"{NOTES[1].text}\n{NOTES[0].text}\nWhich gate?"
    second = backend.generate(replace(ask(), messages=[{"role": "user", "content": turned}]))
    assert [span.state for span in first.report.spans] == ["cold", "cold"]
    assert [span.state for span in second.report.spans] == ["hit", "hit"]


def test_warming_answers_nothing_and_saves_the_building(backend: EmbeddedBackend) -> None:
    assert backend.warm([ask(), ask("Another question?")]) == 2
    assert backend.generate(ask()).report.cold_tokens == 0
    assert backend.invalidate(tenant="default") == 2
    assert backend.generate(ask()).report.cold_tokens > 0


async def test_threads_and_tasks_are_answered_together(backend: EmbeddedBackend) -> None:
    requests = [ask(f"Question {i}?", max_tokens=20) for i in range(6)]
    expected = [backend.generate(request).token_ids for request in requests]
    steps = 0
    step = backend.engine.step

    def counted() -> Any:
        nonlocal steps
        steps += 1
        return step()

    backend.engine.step = counted  # type: ignore[method-assign]
    with ThreadPoolExecutor(3) as pool:
        waiting = [asyncio.wrap_future(pool.submit(backend.generate, request)) for request in requests[:3]]
        got = await asyncio.gather(*waiting, *(backend.agenerate(request) for request in requests[3:]))
    assert [one.token_ids for one in got] == expected
    assert steps < 6 * 20  # one at a time would take a step a token


def test_closing_a_stream_cancels_its_request(backend: EmbeddedBackend) -> None:
    stream = backend.stream(ask(max_tokens=2000))
    next(stream)
    assert not is_idle(backend)
    stream.close()
    assert is_idle(backend)
    assert backend.engine.stats().pinned == 0


async def test_closing_an_async_stream_cancels_its_request(backend: EmbeddedBackend) -> None:
    stream = backend.astream(ask(max_tokens=2000))
    await anext(stream)
    await stream.aclose()
    assert is_idle(backend)


@pytest.mark.parametrize("streams", [False, True])
async def test_cancelling_a_task_cancels_its_request(backend: EmbeddedBackend, streams: bool) -> None:
    async def consume() -> None:
        if not streams:
            await backend.agenerate(ask(max_tokens=5000))
        async for _ in backend.astream(ask(max_tokens=5000)):
            pass

    other = asyncio.create_task(backend.agenerate(ask(max_tokens=30)))
    task = asyncio.create_task(consume())
    await asyncio.to_thread(wait_for_jobs, backend, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len((await other).token_ids) == 30
    assert await asyncio.to_thread(is_idle, backend)


@pytest.mark.parametrize("way", ["generate", "agenerate", "stream", "astream"])
async def test_late_requests_fail_and_stop(backend: EmbeddedBackend, way: str) -> None:
    request = ask(max_tokens=100_000, timeout_s=0.2)
    with pytest.raises(RequestTimeout, match=r"0\.2 s") as caught:
        await answer(backend, way, request)
    assert isinstance(caught.value, TimeoutError)
    assert is_idle(backend)
    assert len(backend.generate(ask(timeout_s=60)).token_ids) == 12


@pytest.mark.parametrize("way", ["generate", "agenerate", "stream", "astream"])
@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (ask(max_tokens=1_000_000), ContextOverflow),
        (ChatRequest([{"role": "wizard", "content": "x"}]), InvalidMessages),
    ],
)
async def test_bad_requests_fail_in_every_way(
    backend: EmbeddedBackend, way: str, request_: ChatRequest, error: type[HypicError]
) -> None:
    with pytest.raises(error):
        await answer(backend, way, request_)


async def answer(backend: EmbeddedBackend, way: str, request: ChatRequest) -> None:
    if way == "generate":
        backend.generate(request)
    elif way == "agenerate":
        await backend.agenerate(request)
    elif way == "stream":
        list(backend.stream(request))
    else:
        async for _ in backend.astream(request):
            pass


def test_an_answer_may_be_fitted_to_the_window(backend: EmbeddedBackend) -> None:
    backend.engine.model.window, window = len(backend.prompt(ask())) + 5, backend.engine.model.window
    try:
        fitted = backend.generate(ask(max_tokens=50, fit_window=True))
        assert len(fitted.token_ids) == 5
        with pytest.raises(ContextOverflow):
            backend.generate(ask(max_tokens=50))
        backend.engine.model.window -= 5
        with pytest.raises(ContextOverflow):
            backend.generate(ask(max_tokens=50, fit_window=True))
    finally:
        backend.engine.model.window = window


def test_closing_fails_what_runs_and_what_comes() -> None:
    backend = EmbeddedBackend(engine())
    stream = backend.stream(ask(max_tokens=5000))
    next(stream)
    backend.close()
    with pytest.raises(EngineClosed):
        list(stream)
    with pytest.raises(EngineClosed):
        backend.generate(ask())
    backend.close()


def test_closing_before_the_first_use_loads_nothing() -> None:
    loads: list[int] = []
    backend = EmbeddedBackend(lambda: loads.append(1) or engine())  # type: ignore[func-returns-value]
    assert not backend.loaded
    backend.close()
    with pytest.raises(EngineClosed):
        backend.model_info()
    assert loads == []


def test_threads_that_come_together_load_once() -> None:
    loads: list[int] = []
    gate = threading.Barrier(4)

    def load() -> Any:
        loads.append(1)
        return engine()

    backend = EmbeddedBackend(load)

    def use(_: int) -> int:
        gate.wait()
        return backend.model_info().window

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(use, range(4)))) == 1
    assert loads == [1]
    backend.close()


def test_a_dead_event_loop_harms_nobody(backend: EmbeddedBackend) -> None:
    stream = backend.astream(ask(max_tokens=5000))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(anext(stream))
    loop.close()  # and nobody closes the generator
    while not is_idle(backend):
        pass
    assert len(backend.generate(ask()).token_ids) == 12


def test_a_failing_loop_reaches_those_who_wait(backend: EmbeddedBackend) -> None:
    step = backend.engine.step
    backend.engine.step = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(HypicError, match="ZeroDivisionError"):
        backend.generate(ask())
    backend.engine.step = step  # type: ignore[method-assign]
    assert len(backend.generate(ask()).token_ids) == 12


def test_one_backend_a_model_and_configuration() -> None:
    close_shared()
    one = shared_backend("tiny", EngineConfig(max_batch=2))
    assert shared_backend("tiny", EngineConfig(max_batch=2)) is one
    assert shared_backend("tiny", EngineConfig(max_batch=3)) is not one
    assert not one.loaded
    one.close()
    assert shared_backend("tiny", EngineConfig(max_batch=2)) is not one
    close_shared()


def test_reasoning_is_told_from_the_answer() -> None:
    from transformers import AutoTokenizer

    plain = engine()
    own = AutoTokenizer.from_pretrained(str(TINY))
    thinks = ChatTokenizer(own, chat_template=own.chat_template + "{{- '<think>\\n' if add_generation_prompt -}}")
    backend = EmbeddedBackend(Engine(plain.model, thinks, plain.fingerprint, plain.config))
    assert backend.model_info().reasoning
    assert not EmbeddedBackend(plain).model_info().reasoning
    varied = replace(ask(), sampling=SamplingParams(max_tokens=12, temperature=1.0, seed=1))
    thought = backend.generate(varied)
    assert thought.text == ""
    assert thought.reasoning
    assert "".join(chunk.reasoning for chunk in backend.stream(varied)) == thought.reasoning
    # An answer that is held to a form is one from its first token on.
    held = backend.generate(ask(max_tokens=40, response_format={"type": "json_object"}))
    assert held.reasoning == ""
    assert isinstance(json.loads(held.text), dict)
    backend.close()


def test_a_call_that_was_closed_for_want_of_room_is_not_carried_out(backend: EmbeddedBackend) -> None:
    parameters = {"type": "object", "properties": {"note": {"type": "string", "minLength": 40}}, "required": ["note"]}
    tool = {"type": "function", "function": {"name": "keep", "description": "Keep.", "parameters": parameters}}
    answer = backend.generate(ask(max_tokens=56, tools=[tool], tool_choice="required"))
    assert answer.metadata["grammar"]["forced_tokens"] > 0
    assert answer.finish_reason == "length"
    assert answer.tool_calls == ()
    (cut,) = answer.invalid_tool_calls
    assert (cut.name, set(json.loads(cut.arguments))) == ("keep", {"note"})
    assert "max_tokens" in cut.error


def test_a_backend_answers_while_it_is_warmed(backend: EmbeddedBackend) -> None:
    answered = threading.Event()

    def until_answered() -> Generator[None, None, int]:
        while not answered.is_set():
            yield
        return 7

    future = backend._running().call_stepwise(until_answered)
    assert backend.generate(ask()).finish_reason
    assert not future.done()
    answered.set()
    assert future.result(30) == 7


async def test_a_task_that_is_cancelled_is_ended(backend: EmbeddedBackend) -> None:
    ended = threading.Event()

    def forever() -> Generator[None, None, int]:
        try:
            while True:
                yield
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await asyncio.wrap_future(backend._running().call_stepwise(forever))
    assert await asyncio.to_thread(ended.wait, 30)
    assert backend.generate(ask()).finish_reason


def test_tasks_fail_alone_and_end_with_the_backend(backend: EmbeddedBackend) -> None:
    def broken() -> Generator[None, None, int]:
        yield
        raise LookupError("nothing there")

    def forever() -> Generator[None, None, int]:
        while True:
            yield

    driver = backend._running()
    first, second = driver.call_stepwise(broken), driver.call_stepwise(forever)
    with pytest.raises(LookupError, match="nothing there"):
        first.result(30)
    backend.close()
    with pytest.raises(EngineClosed):
        second.result(30)
    with pytest.raises(EngineClosed):
        driver.call_stepwise(forever)
