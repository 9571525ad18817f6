"""All that a backend does on its event loop: choosing servers, trying again, and the calls beside questions."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx

from hypic_agents.completion import Completion, StreamChunk
from hypic_agents.errors import ContextOverflow, RequestTimeout
from hypic_agents.integrations.sglang.dialect import ServerFacts
from hypic_agents.integrations.sglang.errors import InvalidReply, RequestRejected, ServerError, UnsupportedServer
from hypic_agents.integrations.sglang.exchange import Exchange
from hypic_agents.integrations.sglang.known import GLUE, Condition, Salts, digest
from hypic_agents.integrations.sglang.payload import AnswerForm
from hypic_agents.integrations.sglang.pool import Pool, Server
from hypic_agents.integrations.sglang.retry import RetryPolicy
from hypic_agents.integrations.sglang.warming import warm_parts
from hypic_agents.integrations.sglang.work import Work


class Session:
    """Lives on one event loop.

    Args:
        pool: The servers.
        client: Their connections; closed with the session.
        retry: How long to wait between tries.
        warms: Send missing segments ahead of a prompt (HYPIC builds).
    """

    def __init__(self, pool: Pool, client: httpx.AsyncClient, retry: RetryPolicy, *, warms: bool) -> None:
        self.pool = pool
        self._client = client
        self._retry = retry
        self._warms = warms
        self._salts = Salts()

    async def facts(self) -> ServerFacts:
        """Of the model that the servers share; see :meth:`Pool.connect`."""
        return await self.pool.connect()

    async def complete(self, work: Work) -> Completion:
        """The answer, asked for in one reply."""
        async with aclosing(self._answer(work, streams=False)) as chunks:
            async for chunk in chunks:
                if chunk.completion is not None:
                    return chunk.completion
        raise AssertionError("an answer that does not fail has a completion")

    async def stream(self, work: Work) -> AsyncGenerator[StreamChunk, None]:
        """The answer in chunks. Closing the generator cancels the request on the server."""
        async with aclosing(self._answer(work, streams=True)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def warm(self, works: Sequence[Work]) -> int:
        """Make the servers hold what these could reuse; how many entries are new."""
        return sum([await self._warm(work) for work in works])

    async def invalidate(self, condition: Condition) -> int:
        """Let nothing that the condition covers be reused; how many segments this client had sent of it.

        Raises:
            ServerError: A HYPIC build cannot be emptied, for instance because it is at work.
        """
        await self.pool.connect()
        self._salts.invalidate(condition)
        gone: set[bytes] = set()
        for server in self.pool.servers:
            covered = server.sent.covered(condition)
            if server.facts is None or server.facts.separated is not None:
                await self._flush(server)
            server.sent.discard(covered)
            gone |= covered
        return len(gone)

    async def token_ids(self, text: str) -> list[int]:
        """Ids of a text, from the server's tokenizer."""
        reply = await self._ask_first("/tokenize", {"prompt": text, "add_special_tokens": False})
        return [int(one) for one in reply["tokens"]]

    async def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> int:
        """Length of a chat's prompt, from the server's tokenizer."""
        body: dict[str, Any] = {"messages": list(messages)}
        if tools:
            body["tools"] = list(tools)
        return int((await self._ask_first("/tokenize", body))["count"])

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _answer(self, work: Work, *, streams: bool) -> AsyncGenerator[StreamChunk, None]:
        limit = work.request.timeout_s
        left = None if limit is None else max(0.0, work.started_s + limit - time.monotonic())
        try:
            async with asyncio.timeout(left) as deadline:
                async with aclosing(self._tries(work, streams=streams)) as chunks:
                    async for chunk in chunks:
                        yield chunk
        except TimeoutError:
            if limit is None or not deadline.expired():
                raise
            raise RequestTimeout(limit) from None

    async def _tries(self, work: Work, *, streams: bool) -> AsyncGenerator[StreamChunk, None]:
        """Servers in order, and in rounds, until one answers. What was shown is never shown again."""
        await self.pool.connect()
        left = work.request.max_retries
        waiting: list[Server] = []
        attempt = 0
        while True:
            waiting = waiting or self.pool.order(work.keys)
            server = waiting.pop(0)
            shown = False
            try:
                async with aclosing(Exchange(server, work, self._salts, streams, self._warms).chunks()) as chunks:
                    async for chunk in chunks:
                        shown = True
                        yield chunk
            except ContextOverflow as overflow:
                shorter = None if shown else work.shortened(overflow)
                if shorter is None:
                    raise
                work, waiting = shorter, [server]
            except ServerError as error:
                self.pool.mark_down(server, error)
                if shown:
                    raise
                if error.untouched and waiting:
                    continue  # nothing was computed: another server is no second try
                attempt += 1
                wait = self._retry.wait_s(attempt, error.retry_after_s)
                if left == 0 or math.isinf(wait):
                    raise
                left -= 1
                if not waiting:
                    await asyncio.sleep(wait)
            else:
                self.pool.mark_up(server)
                return

    async def _warm(self, work: Work) -> int:
        await self.pool.connect()
        server = self.pool.order(work.keys)[0]
        assert server.facts is not None, "Pool.order gives servers that answered"
        if work.cut is not None and server.facts.separated is not None:
            return len(await warm_parts(server, work.cut.parts[:-1], server.facts.separated.separator))
        salt = self._salts.salt(work.request.scope, work.request.segments)
        prefix = digest(salt or "", *(key.digest.hex() for key in work.keys))
        if prefix in server.sent:
            return 0
        await self.complete(replace(work, form=AnswerForm(work.form.tools), max_tokens=1))
        server.sent.add(prefix, GLUE)
        return 1

    async def _flush(self, server: Server) -> None:
        try:
            await server.transport.steady("POST", "/flush_cache")
        except RequestRejected as error:
            raise ServerError(f"{server.url} cannot empty its cache while it is at work: {error}") from error
        server.sent.clear()

    async def _ask_first(self, path: str, body: Mapping[str, Any]) -> Any:
        await self.pool.connect()
        server = self.pool.order(())[0]
        try:
            reply = await server.transport.steady("POST", path, body)
        except RequestRejected as error:
            raise UnsupportedServer(
                f"{server.url} cannot count tokens ({error}); give the model's tokenizer with tokenizer="
            ) from error
        if not isinstance(reply, Mapping) or not {"tokens", "count"} <= set(reply):
            raise InvalidReply(f"the reply of {server.url}{path} holds no tokens: {str(reply)[:200]}")
        return reply
