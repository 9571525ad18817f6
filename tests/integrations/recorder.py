"""An embedded backend that remembers what it was asked, the prompts it made of it, and what it answered."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from hypic_agents.backend import ChatRequest
from hypic_agents.completion import Completion, StreamChunk
from hypic_agents.core import Prompt
from hypic_agents.runtime.embedded import EmbeddedBackend
from hypic_agents.runtime.engine import Engine


class Recorder(EmbeddedBackend):
    def __init__(self, engine: Engine | Callable[[], Engine]) -> None:
        super().__init__(engine)
        self.asked: list[tuple[ChatRequest, Prompt]] = []
        self.answers: list[Completion] = []

    def prompt(self, request: ChatRequest) -> Prompt:
        prompt = super().prompt(request)
        self.asked.append((request, prompt))
        return prompt

    def generate(self, request: ChatRequest) -> Completion:
        self.answers.append(super().generate(request))
        return self.answers[-1]

    async def agenerate(self, request: ChatRequest) -> Completion:
        self.answers.append(await super().agenerate(request))
        return self.answers[-1]

    def stream(self, request: ChatRequest) -> Generator[StreamChunk, None, None]:
        for chunk in super().stream(request):
            if chunk.completion is not None:
                self.answers.append(chunk.completion)
            yield chunk

    async def astream(self, request: ChatRequest) -> Any:
        async for chunk in super().astream(request):
            if chunk.completion is not None:
                self.answers.append(chunk.completion)
            yield chunk

    @property
    def last_prompt(self) -> Prompt:
        return self.asked[-1][1]

    def bare_prompt(self, at: int = -1) -> Prompt:
        """What the same messages make without any hint."""
        request = self.asked[at][0]
        return self.engine.builder.build_chat(request.messages, tools=request.shown_tools, scope=request.scope)

    def is_idle(self) -> bool:
        """Whether no request is left in the engine."""
        driver = self._running()
        return driver.call(lambda: not driver._jobs and driver.engine._schedule.idle).result(30)
