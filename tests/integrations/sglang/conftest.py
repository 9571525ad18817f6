"""What the tests of this folder share: one engine behind all servers, and backends that are closed behind a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest

from hypic_agents.integrations.sglang import Connection, RetryPolicy, SGLangBackend
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.embedded import EmbeddedBackend
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.models.registry import TINY
from tests.integrations.sglang.loopback import Loopback

QUICK = RetryPolicy(base_s=0.01, max_s=0.5)


@pytest.fixture(scope="package")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer.from_pretrained(str(TINY))


@pytest.fixture(scope="package")
def embedded() -> Iterator[EmbeddedBackend]:
    backend = EmbeddedBackend(Engine.load("tiny"))
    yield backend
    backend.close()


@pytest.fixture
def serve(embedded: EmbeddedBackend) -> Iterator[Callable[..., Loopback]]:
    """Starts servers on an empty store."""
    servers: list[Loopback] = []

    def start(kind: Any = "stock", **info: Any) -> Loopback:
        servers.append(Loopback(embedded, kind, **info))
        return servers[-1]

    embedded.invalidate(tenant="default")
    yield start
    for server in servers:
        server.flush()
        server.close()


@pytest.fixture
def connect(tokenizer: ChatTokenizer) -> Iterator[Callable[..., SGLangBackend]]:
    """Makes backends with the tokenizer, quick retries and no proxies; options are also those of ``Connection``."""
    backends: list[SGLangBackend] = []

    def make(*servers: Loopback | str, **options: Any) -> SGLangBackend:
        reached: dict[str, Any] = {"trust_env": False}
        urls = [one if isinstance(one, str) else one.url for one in servers]
        for name in set(options) & {field.name for field in fields(Connection)}:
            reached[name] = options.pop(name)
        settings = {"tokenizer": tokenizer, "retry": QUICK, "connection": Connection(**reached), **options}
        backends.append(SGLangBackend(urls, **settings))
        return backends[-1]

    yield make
    for backend in backends:
        backend.close()
