"""One try of one request on one server: what is sent, how the reply is read, what is reported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import uuid4

from hypic_agents.completion import StreamChunk
from hypic_agents.errors import HypicError
from hypic_agents.integrations.sglang import payload
from hypic_agents.integrations.sglang.answer import Answer
from hypic_agents.integrations.sglang.dialect import ServerFacts
from hypic_agents.integrations.sglang.errors import ServerError
from hypic_agents.integrations.sglang.known import GLUE, Salts, scoped, segment_key
from hypic_agents.integrations.sglang.pool import Server
from hypic_agents.integrations.sglang.replies import ChatReader, GenerateReader
from hypic_agents.integrations.sglang.reuse import parts_report, prefix_report
from hypic_agents.integrations.sglang.warming import warm_parts
from hypic_agents.integrations.sglang.work import Work

ABORT_S: Final = 2.0


@dataclass(slots=True)
class Exchange:
    """Sends ``work`` to ``server`` and reads the answer.

    Attributes:
        warms: Send missing parts ahead.
        rid: What the server calls this try.
    """

    server: Server
    work: Work
    salts: Salts
    streams: bool
    warms: bool = True
    rid: str = field(default_factory=lambda: f"hypic-{uuid4().hex}")
    _warmed: tuple[bytes, ...] = ()
    _build_s: float = 0.0
    _ttft_s: float = 0.0

    async def chunks(self) -> AsyncGenerator[StreamChunk, None]:
        """The answer; the last chunk carries the completion. An exchange that does not come to its end is aborted."""
        facts = self.server.facts
        assert facts is not None, "only servers that answered are asked"
        await self._warm(facts)
        answer = Answer(self.work.form, self.work.in_reasoning)
        path, body = self._request(facts)
        reader = ChatReader() if path == payload.CHAT else GenerateReader(incremental=facts.incremental)
        over = False
        try:
            async with aclosing(self._events(path, body)) as events:
                async for event in events:
                    chunk = answer.push(reader.read(event))
                    self._ttft_s = self._ttft_s or time.monotonic() - self.work.started_s
                    if chunk is not None and self.streams:
                        yield chunk
            last = answer.end()
            over = True
        except HypicError as error:
            over = not isinstance(error, ServerError) or error.untouched
            raise
        finally:
            if not over:
                await self._abort()
        yield self._completed(answer, last, facts)

    async def _warm(self, facts: ServerFacts) -> None:
        cut = self.work.cut
        if cut is None or facts.separated is None or not self.warms:
            return
        before = time.monotonic()
        self._warmed = await warm_parts(self.server, cut.parts[:-1], facts.separated.separator)
        self._build_s = time.monotonic() - before if self._warmed else 0.0

    def _request(self, facts: ServerFacts) -> tuple[str, dict[str, Any]]:
        work = self.work
        if facts.separated is not None:
            assert work.cut is not None, "make_ready cuts what goes to a HYPIC build"
            text = work.cut.text(facts.separated.separator)
            sampling = work.request.sampling
            return payload.GENERATE, payload.generate_payload(
                work.form, sampling, rid=self.rid, text=text, max_tokens=work.max_tokens, stream=self.streams
            )
        return payload.CHAT, payload.chat_payload(
            work.request,
            work.form,
            model=facts.model,
            rid=self.rid,
            messages=work.messages,
            input_ids=None if work.prompt is None else work.prompt.token_ids,
            max_tokens=work.max_tokens,
            cache_salt=self.salts.salt(work.request.scope, work.request.segments),
            stream=self.streams,
        )

    async def _events(self, path: str, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        if not self.streams:
            yield await self.server.transport.call("POST", path, body)
            return
        async with aclosing(self.server.transport.events(path, body)) as events:
            async for event in events:
                yield event

    def _completed(self, answer: Answer, last: StreamChunk, facts: ServerFacts) -> StreamChunk:
        counts, work = answer.counts, self.work
        assert counts is not None, "Answer.end checks it"
        metadata: dict[str, Any] = {"server": self.server.url, "rid": self.rid, "model": facts.model}
        if work.cut is not None and facts.separated is not None:
            report = parts_report(
                work.cut,
                counts,
                self._warmed,
                mode=facts.separated.mode,
                ttft_s=self._ttft_s,
                build_s=self._build_s,
            )
            metadata["changed_token_ids"] = work.cut.num_changed
            self._remember(report.reused_tokens + report.cold_tokens)
        else:
            report = prefix_report(work.prompt, counts, ttft_s=self._ttft_s)
            for segment in scoped(work.request.segments, work.request.scope):
                self.server.sent.add(segment_key(segment), segment)
        if work.prompt is not None:
            report = replace(report, volatile=work.prompt.volatile)
        return StreamChunk(
            last.text,
            completion=answer.completion(report, metadata),
            reasoning=last.reasoning,
            tool_calls=last.tool_calls,
        )

    def _remember(self, cached: int) -> None:
        """Which parts the server holds now. Where it reused much less than it was sent before, it dropped some."""
        assert self.work.cut is not None
        parts = self.work.cut.parts[:-1]
        for part in parts:
            self.server.sent.add(part.key, part.segment or GLUE)
        if 2 * cached < sum(part.num_tokens for part in parts):
            self.server.sent.discard(part.key for part in parts)

    async def _abort(self) -> None:
        try:
            async with asyncio.timeout(ABORT_S):
                await self.server.transport.call("POST", payload.ABORT, payload.abort_payload(self.rid))
        except (HypicError, TimeoutError):
            return  # the closed connection tells the server too
