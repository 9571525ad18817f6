"""A scripted backend for tests of applications: no model, no torch, the whole contract.

::

    backend = FakeBackend(["Hello!", ToolCall("search", {"query": "tea"})])
    model = ChatHypic(backend=backend)
    model.invoke("Hi").content         # "Hello!"
    backend.requests[0].messages       # what the model was sent
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypic_agents.backend import ChatRequest, ModelInfo
from hypic_agents.calls import ToolCall, ToolCallDelta
from hypic_agents.completion import Completion, ReuseReport, SpanReport, SpanState, StreamChunk, Usage
from hypic_agents.core import Scope, Segment
from hypic_agents.errors import EngineClosed

Reply = str | ToolCall | Sequence[ToolCall] | Completion | Exception

_WORD = re.compile(r"\S+\s*|\s+")


class FakeBackend:
    """Answers from a script, and remembers what it was asked.

    Args:
        replies: One a request, in order; the last is repeated. A text, tool calls, a whole completion, or an error to
            raise. Or a function from the request to its reply.
        info: What it says of its model.

    Attributes:
        requests: What it was asked, in order.
        num_cancelled: Streams that were closed before their end.
    """

    def __init__(
        self, replies: Sequence[Reply] | Callable[[ChatRequest], Reply] = ("ok",), info: ModelInfo | None = None
    ) -> None:
        self._replies = replies
        self._info = info or ModelInfo("fake", "fake", window=8192, fingerprint="fake")
        self._vocabulary: dict[str, int] = {}
        self._known: dict[tuple[Scope, str], Segment] = {}
        self.requests: list[ChatRequest] = []
        self.num_cancelled = 0
        self.loaded = True
        self.closed = False

    def model_info(self) -> ModelInfo:
        return self._info

    def generate(self, request: ChatRequest) -> Completion:
        return self._answer(request)

    async def agenerate(self, request: ChatRequest) -> Completion:
        return self._answer(request)

    def stream(self, request: ChatRequest) -> Generator[StreamChunk, None, None]:
        chunks = _cut(self._answer(request))
        finished = False
        try:
            for chunk in chunks:
                finished = chunk.completion is not None
                yield chunk
        finally:
            self.num_cancelled += not finished

    async def astream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk, None]:
        finished = False
        try:
            for chunk in _cut(self._answer(request)):
                finished = chunk.completion is not None
                yield chunk
        finally:
            self.num_cancelled += not finished

    def warm(self, requests: Sequence[ChatRequest]) -> int:
        before = len(self._known)
        for request in requests:
            self._report(request)
        return len(self._known) - before

    async def awarm(self, requests: Sequence[ChatRequest]) -> int:
        return self.warm(requests)

    def invalidate(
        self,
        *,
        source_id: str | None = None,
        version_before: str | None = None,
        tenant: str | None = None,
        group: str | None = None,
    ) -> int:
        gone = [
            key
            for key, segment in self._known.items()
            if source_id in (None, segment.source_id)
            and (version_before is None or segment.version < version_before)
            and tenant in (None, segment.scope.tenant)
            and (group is None or group in segment.scope.groups)
        ]
        for key in gone:
            del self._known[key]
        return len(gone)

    async def ainvalidate(self, **which: str | None) -> int:
        return self.invalidate(**which)

    def token_ids(self, text: str) -> list[int]:
        """One id a word."""
        return [self._vocabulary.setdefault(word, len(self._vocabulary)) for word in _WORD.findall(text)]

    def count_tokens(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        return len(self.token_ids(" ".join(json.dumps(part, default=str) for part in [*messages, *tools])))

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.close()

    def _answer(self, request: ChatRequest) -> Completion:
        if self.closed:
            raise EngineClosed("the backend was closed; create a new one")
        self.requests.append(request)
        if callable(self._replies):
            reply = self._replies(request)
        else:
            reply = self._replies[min(len(self.requests), len(self._replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        text = reply if isinstance(reply, str) else ""
        calls = () if isinstance(reply, str) else (reply,) if isinstance(reply, ToolCall) else tuple(reply)
        calls = tuple(replace(call, id=call.id or f"call_{len(self.requests)}_{i}") for i, call in enumerate(calls))
        ids = tuple(self.token_ids(text + "".join(_arguments(call) for call in calls)))
        report = self._report(request)
        usage = Usage(report.prompt_tokens, len(ids), report.reused_tokens, report.cold_tokens)
        return Completion(text, ids, "stop", usage, report, calls)

    def _report(self, request: ChatRequest) -> ReuseReport:
        """Hints that stand in the messages count as segments: cold at first, hits from then on."""
        where = json.dumps([message.get("content") for message in request.messages], ensure_ascii=False)
        spans: list[SpanReport] = []
        at = 0
        for segment in request.segments:
            num_tokens = len(self.token_ids(segment.text))
            if not segment.text or json.dumps(segment.text, ensure_ascii=False)[1:-1] not in where:
                continue
            key = (request.scope if segment.scope == Scope() else segment.scope, segment.text)
            state: SpanState = "hit" if key in self._known else "cold"
            self._known[key] = segment
            spans.append(SpanReport(segment.kind, segment.source_id, at, at + num_tokens, state, num_tokens))
            at += num_tokens
        cold, hit = (sum(s.composed_tokens for s in spans if s.state == state) for state in ("cold", "hit"))
        total = max(self.count_tokens(request.messages, request.shown_tools), at)
        return ReuseReport(str(request.policy or "fake"), total, total - at, cold, hit, tuple(spans))


def _cut(completion: Completion) -> Generator[StreamChunk, None, None]:
    for word in _WORD.findall(completion.reasoning):
        yield StreamChunk("", reasoning=word)
    for word in _WORD.findall(completion.text):
        yield StreamChunk(word)
    for index, call in enumerate(completion.tool_calls):
        yield StreamChunk("", tool_calls=(ToolCallDelta(index, "", call.name, call.id),))
        for word in _WORD.findall(_arguments(call)):
            yield StreamChunk("", tool_calls=(ToolCallDelta(index, word),))
    yield StreamChunk("", completion=completion)


def _arguments(call: ToolCall) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)
