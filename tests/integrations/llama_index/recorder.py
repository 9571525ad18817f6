"""An engine that remembers what it was asked."""

from __future__ import annotations

from functools import partial

from hypic_agents.backend import ChatRequest
from hypic_agents.core import Prompt
from hypic_agents.runtime.embedded import EmbeddedBackend
from hypic_agents.runtime.engine import Engine


class Recorder(EmbeddedBackend):
    """The engine, with what it was asked and the prompts that it made of it."""

    def __init__(self, model: str) -> None:
        super().__init__(partial(Engine.load, model))
        self.asked: list[tuple[ChatRequest, Prompt]] = []

    def prompt(self, request: ChatRequest) -> Prompt:
        prompt = super().prompt(request)
        self.asked.append((request, prompt))
        return prompt

    def is_idle(self) -> bool:
        driver = self._running()
        return driver.call(lambda: not driver._jobs and driver.engine._schedule.idle).result(30)
