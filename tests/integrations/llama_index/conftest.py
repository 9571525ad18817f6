"""What the tests of this folder share: one engine, and a record of what it was asked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent
from pydantic import Field

from hypic_agents.core import Scope
from hypic_agents.integrations.llama_index.observe import REGISTRY
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.shared import close_shared
from tests.event_loop import own_loop  # noqa: F401  pytest finds it here
from tests.integrations.recorder import Recorder


@pytest.fixture(scope="package")
def tiny() -> Iterator[Recorder]:
    backend = Recorder(partial(Engine.load, "tiny"))
    yield backend
    backend.close()


@pytest.fixture(scope="package")
def endless() -> Iterator[Recorder]:
    """A random model: it never ends an answer by itself."""
    backend = Recorder(partial(Engine.load, "random:qwen3_5:2m"))
    yield backend
    backend.close()


@pytest.fixture(scope="package", autouse=True)
def _engines() -> Iterator[None]:
    yield
    close_shared()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    for scope in (Scope(), Scope("acme")):
        REGISTRY.forget(scope)


class Ears(BaseEventHandler):
    """Finished responses, as any user of LlamaIndex's events gets them."""

    responses: list[Any] = Field(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "Ears"

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, LLMChatEndEvent):
            self.responses.append(event.response)


@pytest.fixture
def heard() -> Iterator[list[ChatResponse]]:
    ears = Ears()
    root = get_dispatcher()
    root.add_event_handler(ears)
    yield ears.responses
    root.event_handlers.remove(ears)
