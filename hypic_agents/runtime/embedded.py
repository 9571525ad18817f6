"""The backend that answers in this process. Importing it does not import torch; the first request does."""

from __future__ import annotations

import asyncio
import json
import threading
import weakref
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypic_agents.backend import ChatRequest, ModelInfo, grammar_of
from hypic_agents.calls import InvalidToolCall
from hypic_agents.completion import Completion, StreamChunk
from hypic_agents.core import Prompt
from hypic_agents.errors import EngineClosed
from hypic_agents.prompt.answer import THINK, AnswerReader
from hypic_agents.runtime.jobs import Event, Job, async_events, events

if TYPE_CHECKING:
    from hypic_agents.runtime.driver import EngineDriver
    from hypic_agents.runtime.engine import Engine
    from hypic_agents.runtime.policy import ReusePolicy

PROVIDER = "hypic"


class EmbeddedBackend:
    """Answers on an :class:`Engine`. See :class:`hypic_agents.backend.Backend` for the verbs.

    One thread computes for all callers, so requests that come together are batched together.

    Args:
        engine: The engine, or a function that loads it: called once, when the model is first needed.
    """

    def __init__(self, engine: Engine | Callable[[], Engine]) -> None:
        self._load: Callable[[], Engine] = engine if callable(engine) else lambda: engine
        self._is_given = not callable(engine)
        self._driver: EngineDriver | None = None
        self._lock = threading.Lock()
        self.closed = False

    @property
    def loaded(self) -> bool:
        return self._is_given or self._driver is not None

    @property
    def engine(self) -> Engine:
        """The engine, loaded if it was not."""
        return self._running().engine

    def model_info(self) -> ModelInfo:
        engine = self.engine
        reasoning = THINK in engine.tokenizer.chat_template
        return ModelInfo(engine.name, PROVIDER, engine.model.window, engine.fingerprint, reasoning=reasoning)

    def generate(self, request: ChatRequest) -> Completion:
        job, reader = self._prepare(request, streams=False)
        with closing(events(self._running(), job)) as news:
            return _whole(next(news), reader)

    async def agenerate(self, request: ChatRequest) -> Completion:
        job, reader = await asyncio.to_thread(self._prepare, request, streams=False)
        async with aclosing(async_events(self._running(), job)) as news:
            return _whole(await anext(news), reader)

    def stream(self, request: ChatRequest) -> Generator[StreamChunk, None, None]:
        job, reader = self._prepare(request, streams=True)
        with closing(events(self._running(), job)) as news:
            for event in news:
                yield from _chunks(event, reader)

    async def astream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk, None]:
        job, reader = await asyncio.to_thread(self._prepare, request, streams=True)
        async with aclosing(async_events(self._running(), job)) as news:
            async for event in news:
                for chunk in _chunks(event, reader):
                    yield chunk

    def warm(self, requests: Sequence[ChatRequest]) -> int:
        return self._running().call_stepwise(self._warming(requests)).result()

    async def awarm(self, requests: Sequence[ChatRequest]) -> int:
        warming = await asyncio.to_thread(self._warming, requests)
        return await asyncio.wrap_future(self._running().call_stepwise(warming))

    def invalidate(self, **which: str | None) -> int:
        """Forget entries before returning; a model that was never loaded has none. See ``SegmentStore.invalidate``."""
        return self._driver.engine.invalidate(**which) if self._driver is not None else 0

    async def ainvalidate(self, **which: str | None) -> int:
        return await asyncio.to_thread(self.invalidate, **which)

    def token_ids(self, text: str) -> list[int]:
        return list(self.engine.tokenizer.encode_text(text))

    def count_tokens(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        return len(self.engine.builder.build_chat(messages, tools=tools))

    def prompt(self, request: ChatRequest) -> Prompt:
        """The prompt that a request makes: its exact token ids, and where its segments stand in them."""
        return self.engine.builder.build_chat(
            request.messages, tools=request.shown_tools, segments=request.segments, scope=request.scope
        )

    def close(self) -> None:
        with self._lock:
            self.closed = True
        if self._driver is not None:
            self._driver.stop()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def _running(self) -> EngineDriver:
        if self._driver is None:
            with self._lock:
                if self.closed:
                    raise EngineClosed("the backend was closed; create a new one")
                if self._driver is None:
                    from hypic_agents.runtime.driver import EngineDriver

                    driver = EngineDriver(self._load())
                    weakref.finalize(self, driver.stop)  # also when the interpreter ends
                    self._driver = driver
        return self._driver

    def _prepare(self, request: ChatRequest, *, streams: bool) -> tuple[Job, AnswerReader]:
        engine = self.engine
        grammar = grammar_of(request)
        job = Job(Prompt(()), request.sampling, request.policy, streams, request.timeout_s)
        job.prompt = self.prompt(request)
        room = max(1, engine.model.window - len(job.prompt))
        limit = request.sampling.max_tokens
        job.sampling = replace(
            request.sampling, grammar=grammar, max_tokens=min(limit, room) if request.fit_window else limit
        )
        # An answer that is held to a form from its first token has no reasoning in front.
        is_text = (request.response_format or {}).get("type", "text") == "text"
        is_free = is_text and request.tool_choice in {"auto", "none"}
        in_reasoning = is_free and job.prompt.text.rstrip().endswith(THINK)
        return job, AnswerReader(request.shown_tools, in_reasoning=in_reasoning)

    def _warming(self, requests: Sequence[ChatRequest]) -> Callable[[], Generator[None, None, int]]:
        engine = self.engine
        prompts: dict[ReusePolicy | str | None, list[Prompt]] = defaultdict(list)
        for request in requests:
            prompts[request.policy].append(self.prompt(request))

        def run() -> Generator[None, None, int]:
            count = 0
            for policy, group in prompts.items():
                count += yield from engine.warming(group, policy)
            return count

        return run


def _whole(event: Event, reader: AnswerReader) -> Completion:
    assert event.completion is not None, "a job that does not stream has one event"
    reader.push(event.completion.text)
    reader.finish()
    return _taken_apart(event.completion, reader)


def _chunks(event: Event, reader: AnswerReader) -> Generator[StreamChunk, None, None]:
    chunk = reader.push(event.text)
    if chunk is not None or event.token_ids:
        yield replace(chunk or StreamChunk(""), token_ids=event.token_ids)
    if event.completion is not None:
        rest = reader.finish() or StreamChunk("")
        yield replace(rest, completion=_taken_apart(event.completion, reader))


def _taken_apart(completion: Completion, reader: AnswerReader) -> Completion:
    calls, invalid = tuple(reader.tool_calls), tuple(reader.invalid_tool_calls)
    if calls and completion.metadata.get("grammar", {}).get("forced_tokens"):
        # The answer was closed for want of room: what stands in the last call is not what the model meant to write.
        cut = calls[-1]
        error = "max_tokens was too small for the call, which was closed before its end; raise it"
        invalid = (*invalid, InvalidToolCall(cut.name, json.dumps(dict(cut.arguments)), cut.id, error))
        calls = calls[:-1]
    return replace(
        completion,
        text=reader.text,
        reasoning=reader.reasoning,
        tool_calls=calls,
        invalid_tool_calls=invalid,
    )
