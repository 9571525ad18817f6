"""The contract of backends, for the embedded one and for every kind of server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from hypic_agents.backend import Backend, ChatRequest
from hypic_agents.completion import Completion, StreamChunk
from hypic_agents.core import SamplingParams, Scope, Segment
from hypic_agents.errors import ContextOverflow, EngineClosed, HypicError, InvalidInput, InvalidMessages, RequestTimeout
from hypic_agents.integrations.sglang import SGLangBackend
from hypic_agents.runtime.embedded import EmbeddedBackend
from tests.integrations.sglang.loopback import Loopback

KINDS = ("embedded", "stock", "plain", "hypic")
WAYS = ("generate", "agenerate", "stream", "astream")
FIND = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Find a thing.",
        "parameters": {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]},
    },
}
SCHEMA = {"type": "object", "properties": {"gate": {"type": "integer"}}, "required": ["gate"]}
ENDLESS: dict[str, Any] = {
    "sampling": SamplingParams(max_tokens=3000),
    "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "string", "minLength": 20_000}}},
}
NOTES = [
    Segment(
        f"Notes {i}: the keeper of gate {i} is called Velmo, and it opens at {i} in the morning on every day.",
        source_id=f"notes-{i}",
        version="1",
    )
    for i in (1, 2, 3)
]


def ask(question: str = "Who keeps gate 2?", notes: list[Segment] = NOTES, **changes: Any) -> ChatRequest:
    content = "\n\n".join([*(note.text for note in notes), question])
    settings: dict[str, Any] = {"segments": notes, "sampling": SamplingParams(max_tokens=12), **changes}
    return ChatRequest([{"role": "user", "content": content}], **settings)


async def answer(backend: Backend, way: str, request: ChatRequest) -> Completion:
    if way == "generate":
        return await asyncio.to_thread(backend.generate, request)
    if way == "agenerate":
        return await backend.agenerate(request)
    chunks = await asyncio.to_thread(lambda: list(backend.stream(request))) if way == "stream" else None
    return check([chunk async for chunk in backend.astream(request)] if chunks is None else chunks)


def check(chunks: list[StreamChunk]) -> Completion:
    """A stream makes up its completion, which is carried by the last chunk alone."""
    done = chunks[-1].completion
    assert done is not None
    assert all(chunk.completion is None for chunk in chunks[:-1])
    assert "".join(chunk.text for chunk in chunks) == done.text
    assert "".join(chunk.reasoning for chunk in chunks) == done.reasoning
    deltas = [delta for chunk in chunks for delta in chunk.tool_calls]
    for index, call in enumerate(done.tool_calls):
        own = [delta for delta in deltas if delta.index == index]
        assert (own[0].name, own[0].id) == (call.name, call.id)
        assert json.loads("".join(delta.arguments for delta in own)) == call.arguments
    return done


class World:
    """A backend and what lies behind it."""

    def __init__(self, backend: Backend, server: Loopback | None, engine: EmbeddedBackend) -> None:
        self.backend = backend
        self.server = server
        self.engine = engine

    def wait_busy(self) -> None:
        driver = self.engine._running()
        until = time.monotonic() + 20
        while not driver.call(lambda: bool(driver._jobs)).result(30):
            assert time.monotonic() < until, "no request came"
            time.sleep(0.005)

    def is_idle(self) -> bool:
        until = time.monotonic() + 20
        driver = self.engine._running()
        while driver.call(lambda: bool(driver._jobs)).result(30) or (self.server is not None and self.server.jobs):
            if time.monotonic() > until:
                return False
            time.sleep(0.005)
        return True


@pytest.fixture(params=KINDS)
def world(
    request: pytest.FixtureRequest,
    embedded: EmbeddedBackend,
    serve: Callable[..., Loopback],
    connect: Callable[..., SGLangBackend],
) -> Iterator[World]:
    if request.param == "embedded":
        serve()
        yield World(embedded, None, embedded)
        return
    server = serve("hypic" if request.param == "hypic" else "stock")
    options = {"tokenizer": None} if request.param == "plain" else {}
    yield World(connect(server, **options), server, embedded)


def test_it_is_a_backend(world: World) -> None:
    assert isinstance(world.backend, Backend)
    info = world.backend.model_info()
    assert (info.name, info.window) == ("tiny", world.engine.model_info().window)
    assert info.fingerprint
    assert world.backend.loaded


async def test_all_four_ways_give_one_answer(world: World) -> None:
    request = ask(policy="exact")
    expected = world.engine.generate(request)
    for way in WAYS:
        done = await answer(world.backend, way, request)
        assert (done.text, done.finish_reason) == (expected.text, expected.finish_reason), way
        assert done.token_ids in ((), expected.token_ids)
        assert done.usage.prompt_tokens == expected.usage.prompt_tokens
        assert done.usage.completion_tokens == expected.usage.completion_tokens
        assert done.usage.cached_tokens + done.usage.created_tokens <= done.usage.prompt_tokens


def test_what_is_repeated_is_reused_and_reported(world: World) -> None:
    world.backend.generate(ask())
    report = world.backend.generate(ask("And gate 3?")).report
    assert report.reused_tokens > 0
    assert report.prompt_tokens == report.live_tokens + report.cold_tokens + report.reused_tokens
    for span in report.spans:
        assert 0 <= span.start < span.end <= report.prompt_tokens
        assert span.state != "live" or span.reason or not span.composed_tokens


def test_segments_that_moved(world: World) -> None:
    """A stock server reuses prefixes; the others reuse segments wherever they stand."""
    world.backend.generate(ask())
    moved = world.backend.generate(ask("And gate 3?", NOTES[::-1])).report
    sources = {span.source_id: span.state for span in moved.spans if span.source_id}
    if world.server is None or world.server.kind == "hypic":
        assert set(sources.values()) == {"hit"}
        assert moved.reused_tokens > 30
    else:
        assert "hit" not in sources.values()


def test_reuse_changes_no_answer_where_it_is_exact(world: World) -> None:
    cold, warm = (world.backend.generate(ask("Which gates are there?")) for _ in range(2))
    assert cold.text == warm.text
    assert cold.usage.prompt_tokens == warm.usage.prompt_tokens


def test_warming_and_invalidating(world: World) -> None:
    backend = world.backend
    assert backend.warm([ask()]) >= 1
    assert backend.warm([ask()]) == 0
    assert backend.generate(ask()).report.reused_tokens > 0
    assert backend.invalidate(source_id="notes-2", version_before="1") == 0
    assert backend.invalidate(source_id="elsewhere") == 0
    if world.server is None or world.server.kind == "hypic":
        assert backend.generate(ask()).report.cold_tokens >= 0
        assert backend.invalidate(source_id="notes-2") >= 1
        states = {span.source_id: span.state for span in backend.generate(ask()).report.spans}
        assert states["notes-2"] == "cold"
    else:
        backend.generate(ask())
        assert backend.invalidate(source_id="notes-2") == 1
        assert backend.generate(ask()).report.reused_tokens == 0
    with pytest.raises(InvalidInput):
        backend.invalidate()


def test_scopes_share_nothing(world: World) -> None:
    world.backend.generate(ask())
    other = world.backend.generate(ask(scope=Scope("acme"))).report
    assert other.reused_tokens == 0


@pytest.mark.parametrize("way", WAYS)
async def test_calls_can_be_required(world: World, way: str) -> None:
    request = ask(tools=[FIND], tool_choice="find", parallel_tool_calls=False, sampling=SamplingParams(max_tokens=120))
    done = await answer(world.backend, way, request)
    assert [call.name for call in done.tool_calls] == ["find"]
    assert isinstance(done.tool_calls[0].arguments["thing"], str)
    assert done.tool_calls[0].id


@pytest.mark.parametrize("way", ["agenerate", "astream"])
async def test_answers_can_be_held_to_a_schema(world: World, way: str) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "gate", "schema": SCHEMA}}
    done = await answer(world.backend, way, ask(response_format=form, sampling=SamplingParams(max_tokens=60)))
    assert isinstance(json.loads(done.text)["gate"], int)


async def test_either_calls_or_an_answer_of_a_form(world: World) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "gate", "schema": SCHEMA}}
    request = ask(tools=[FIND], response_format=form, sampling=SamplingParams(max_tokens=120))
    done = await answer(world.backend, "astream", request)
    if done.tool_calls:
        assert done.tool_calls[0].name == "find"
    else:
        assert isinstance(json.loads(done.text)["gate"], int)


def test_stops_end_an_answer(world: World) -> None:
    whole = world.backend.generate(ask(policy="exact", sampling=SamplingParams(max_tokens=20)))
    word = whole.text.split()[1]
    cut = world.backend.generate(ask(policy="exact", sampling=SamplingParams(max_tokens=20, stop=(word,))))
    assert cut.text == whole.text.partition(word)[0]


def test_tokens_are_counted_as_prompts_have_them(world: World) -> None:
    request = ask(tools=[FIND])
    counted = world.backend.count_tokens(request.messages, request.tools)
    assert counted == world.backend.generate(replace(request, policy="exact")).usage.prompt_tokens
    assert world.backend.token_ids("gate") == world.engine.token_ids("gate")


@pytest.mark.parametrize("way", ["stream", "astream"])
async def test_closing_a_stream_cancels_the_request(world: World, way: str) -> None:
    request = ask(**ENDLESS)
    if way == "stream":
        chunks = world.backend.stream(request)
        next(chunks)
        chunks.close()
    else:
        achunks = world.backend.astream(request)
        await anext(achunks)
        await achunks.aclose()
    assert await asyncio.to_thread(world.is_idle)


async def test_cancelling_a_task_cancels_the_request(world: World) -> None:
    request = ask(**ENDLESS)
    task = asyncio.create_task(world.backend.agenerate(request))
    await asyncio.to_thread(world.wait_busy)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(world.is_idle)


@pytest.mark.parametrize("way", WAYS)
async def test_late_requests_fail_and_stop(world: World, way: str) -> None:
    world.backend.model_info()
    request = ask(**ENDLESS, timeout_s=0.3)
    with pytest.raises(RequestTimeout, match=r"0\.3 s"):
        await answer(world.backend, way, request)
    assert await asyncio.to_thread(world.is_idle)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (ask(sampling=SamplingParams(max_tokens=10_000_000)), ContextOverflow),
        (ChatRequest([{"role": "wizard", "content": "x"}]), InvalidMessages),
        (ask(response_format={"type": "xml"}), InvalidInput),
        (ask(policy="elaborate"), InvalidInput),
    ],
    ids=["overflow", "role", "form", "policy"],
)
async def test_bad_requests_fail_in_every_way(
    world: World, way: str, request_: ChatRequest, error: type[HypicError]
) -> None:
    with pytest.raises(error):
        await answer(world.backend, way, request_)


def test_an_answer_may_be_fitted_to_the_window(world: World) -> None:
    fitted = ask(sampling=SamplingParams(max_tokens=10_000_000), fit_window=True)
    assert world.backend.generate(fitted).finish_reason == "stop"


async def test_threads_and_loops_share_it(world: World) -> None:
    requests = [ask(f"Question {i}?", policy="exact") for i in range(4)]
    expected = [world.engine.generate(request).text for request in requests]

    def in_own_loop(request: ChatRequest) -> str:
        return asyncio.run(world.backend.agenerate(request)).text

    with ThreadPoolExecutor(3) as pool:
        waiting = [
            asyncio.wrap_future(pool.submit(in_own_loop, requests[0])),
            asyncio.wrap_future(pool.submit(lambda: world.backend.generate(requests[1]).text)),
        ]
        other = [(await one).text for one in map(world.backend.agenerate, requests[2:])]
        assert [*await asyncio.gather(*waiting), *other] == expected


def test_closing_fails_what_runs_and_what_comes(world: World) -> None:
    if world.server is None:
        return  # tests/runtime/test_embedded.py; here its engine serves everyone
    chunks = world.backend.stream(ask(**ENDLESS))
    next(chunks)
    world.backend.close()
    with pytest.raises(EngineClosed):
        list(chunks)
    with pytest.raises(EngineClosed):
        world.backend.generate(ask())
    world.backend.close()
    assert world.is_idle()
