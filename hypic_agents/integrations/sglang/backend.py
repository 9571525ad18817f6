"""``SGLangBackend``: the backend that asks servers."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypic_agents.backend import ChatRequest, ModelInfo
from hypic_agents.completion import Completion, StreamChunk
from hypic_agents.core import Scope
from hypic_agents.errors import InvalidInput
from hypic_agents.integrations.sglang.connection import Connection
from hypic_agents.integrations.sglang.dialect import ServerFacts
from hypic_agents.integrations.sglang.errors import UnsupportedServer
from hypic_agents.integrations.sglang.known import Condition
from hypic_agents.integrations.sglang.loop import LoopThread
from hypic_agents.integrations.sglang.pool import Pool, Server
from hypic_agents.integrations.sglang.retry import RetryPolicy
from hypic_agents.integrations.sglang.session import Session
from hypic_agents.integrations.sglang.transport import Transport, origin_of
from hypic_agents.integrations.sglang.work import Rules, Work, make_ready
from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from hypic_agents.prompt.answer import THINK
from hypic_agents.prompt.messages import normalise

T = TypeVar("T")

PROVIDER = "sglang"

_DEFAULT_SCOPE = Scope()
_DEFAULT_RETRY = RetryPolicy()
_DEFAULT_CONNECTION = Connection()


class SGLangBackend:
    """Answers on one SGLang server, or on several that serve one model. See :class:`hypic_agents.backend.Backend`.

    ::

        backend = SGLangBackend("http://127.0.0.1:30000", tokenizer="Qwen/Qwen3.5-4B")
        model = ChatHypic(backend=backend)

    Nothing is asked before the first call. ``/server_info`` then tells which of two kinds the servers are:

    * a HYPIC build is sent text, cut into segments that it reuses wherever they stand; what it lacks is sent ahead;
    * a stock server is sent exact token ids and reuses prefixes, each scope under a salt of its own.

    Args:
        base_url: Of the server, or of each.
        tokenizer: The model's: a directory, a hub name, or a ``ChatTokenizer``. Without one, a stock server renders
            and tokenises the messages itself, and a HYPIC build cannot be used.
        api_key: Sent as a bearer token.
        headers: Sent with every call.
        connection: Certificates, waits and bounds.
        retry: How calls that change nothing are repeated, and the waits between the tries of a question.
        escape: Break up content that a HYPIC build would not read as content, rather than refuse it.
        warm_missing: Send segments that a HYPIC build lacks ahead of the prompt.
        server_scope: Whose segments a HYPIC build caches, which keeps no scopes apart; prompts of others are sent
            whole and not cached.
        min_segment_len: Segments with fewer tokens are no parts of their own.
        allow_any_mode: Accept a HYPIC build whose mode reuses keys at wrong positions or without a seam.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        *,
        tokenizer: str | Path | ChatTokenizer | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        connection: Connection = _DEFAULT_CONNECTION,
        retry: RetryPolicy = _DEFAULT_RETRY,
        escape: bool = False,
        warm_missing: bool = True,
        server_scope: Scope = _DEFAULT_SCOPE,
        min_segment_len: int = 24,
        allow_any_mode: bool = False,
    ) -> None:
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        self._origins = list(dict.fromkeys(map(origin_of, urls)))
        if not self._origins:
            raise InvalidInput("base_url names no server; give one URL or several")
        own = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._headers = {**own, **(headers or {})}
        self._connection = connection
        self._retry = retry
        self._warm_missing = warm_missing
        self._allow_any_mode = allow_any_mode
        self._rules = Rules(None, escape, server_scope, min_segment_len)
        self._tokenizer = tokenizer
        self._loop = LoopThread()
        self._sessions: list[Session] = []
        self._close = weakref.finalize(self, _stop, self._loop, self._sessions)  # also when the interpreter ends
        self._facts: ServerFacts | None = None
        self.closed = False

    def __repr__(self) -> str:
        return f"SGLangBackend({[str(origin) for origin in self._origins]})"

    @property
    def loaded(self) -> bool:
        return self._facts is not None

    def model_info(self) -> ModelInfo:
        return self._info(self._connected())

    def generate(self, request: ChatRequest) -> Completion:
        work = self._ready(request)
        return self._loop.call(self._with_session(lambda session: session.complete(work)))

    async def agenerate(self, request: ChatRequest) -> Completion:
        work = await asyncio.to_thread(self._ready, request)
        return await self._loop.acall(self._with_session(lambda session: session.complete(work)))

    def stream(self, request: ChatRequest) -> Generator[StreamChunk, None, None]:
        work = self._ready(request)
        yield from self._loop.iterate(self._streamed(work))

    async def astream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk, None]:
        work = await asyncio.to_thread(self._ready, request)
        chunks = self._loop.aiterate(self._streamed(work))
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    def warm(self, requests: Sequence[ChatRequest]) -> int:
        """See ``Backend.warm``. A stock server computes one token of each prompt; only its prefix is reused later."""
        works = [self._ready(request) for request in requests]
        return self._loop.call(self._with_session(lambda session: session.warm(works)))

    async def awarm(self, requests: Sequence[ChatRequest]) -> int:
        return await asyncio.to_thread(self.warm, requests)

    def invalidate(
        self,
        *,
        source_id: str | None = None,
        version_before: str | None = None,
        tenant: str | None = None,
        group: str | None = None,
    ) -> int:
        """See ``Backend.invalidate``. Counts the segments that this client had sent.

        This client's prompts never match anything that it covers on a stock server again, where it stays in memory
        until it is evicted. A HYPIC build is emptied, for all its clients.

        Raises:
            ServerError: A HYPIC build cannot be emptied now.
        """
        condition = Condition(source_id, version_before, tenant, group)
        return self._loop.call(self._with_session(lambda session: session.invalidate(condition)))

    async def ainvalidate(self, **which: str | None) -> int:
        return await asyncio.to_thread(self.invalidate, **which)

    def token_ids(self, text: str) -> list[int]:
        tokenizer = self._own_tokenizer()
        if tokenizer is not None:
            return list(tokenizer.encode_text(text))
        return self._loop.call(self._with_session(lambda session: session.token_ids(text)))

    def count_tokens(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        tokenizer = self._own_tokenizer()
        if tokenizer is not None:
            return len(PromptBuilder(tokenizer).build_chat(messages, tools=tools))
        chat = normalise(messages).messages
        return self._loop.call(self._with_session(lambda session: session.count(chat, tools)))

    def close(self) -> None:
        self.closed = True
        self._close()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    async def _with_session(self, ask: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        return await ask(self._on_loop())

    async def _streamed(self, work: Work) -> AsyncGenerator[StreamChunk, None]:
        chunks = self._on_loop().stream(work)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    def _on_loop(self) -> Session:
        """The session, made on the loop's thread, where all its parts live."""
        if not self._sessions:
            client, most = self._connection.client(self._headers), self._connection.max_reply_bytes
            servers = [Server(Transport(origin, client, most, self._retry)) for origin in self._origins]
            pool = Pool(servers, allow_any_mode=self._allow_any_mode)
            self._sessions.append(Session(pool, client, self._retry, warms=self._warm_missing))
        return self._sessions[0]

    def _ready(self, request: ChatRequest) -> Work:
        facts, tokenizer = self._connected(), self._own_tokenizer()
        started_s = time.monotonic()
        if tokenizer is None and facts.separated is not None:
            raise UnsupportedServer(
                "a HYPIC build takes text, so the chat template is rendered here: give the model's tokenizer, a "
                "directory or hub name, with tokenizer="
            )
        return make_ready(request, facts, self._rules, started_s)

    def _connected(self) -> ServerFacts:
        if self._facts is None:
            self._facts = self._loop.call(self._with_session(lambda session: session.facts()))
        return self._facts

    def _own_tokenizer(self) -> ChatTokenizer | None:
        rules = self._rules
        if rules.tokenizer is None and self._tokenizer is not None:
            given = self._tokenizer
            tokenizer = given if isinstance(given, ChatTokenizer) else ChatTokenizer.from_pretrained(str(given))
            self._rules = Rules(tokenizer, rules.escape, rules.server_scope, rules.min_segment_len)
        return self._rules.tokenizer

    def _info(self, facts: ServerFacts) -> ModelInfo:
        tokenizer = self._own_tokenizer()
        template = "" if tokenizer is None else tokenizer.chat_template
        return ModelInfo(
            name=facts.model,
            provider=PROVIDER,
            window=facts.window,
            fingerprint=facts.fingerprint,
            tools="tools" in template if tokenizer is not None else facts.parses_calls,
            structured_output=facts.constrains,
            reasoning=facts.parses_reasoning or THINK in template,
        )


def _stop(loop: LoopThread, sessions: list[Session]) -> None:
    async def last() -> None:
        for session in sessions:
            await session.aclose()

    loop.stop(last)
