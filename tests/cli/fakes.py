"""An engine for CLI tests: it answers from a table and counts what it was asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hypic_agents.cli.services import Services
from hypic_agents.completion import Completion, ReuseReport, SpanReport, StreamChunk, Usage
from hypic_agents.core import Prompt, SamplingParams, Segment
from hypic_agents.errors import HypicError

REUSED_PER_DOCUMENT = 10


class FakeBuilder:
    """Makes one token a word and keeps the documents in the prompt's text."""

    def build(
        self, *, system: str | None = None, documents: Sequence[Segment] = (), question: str | None = None, **_: Any
    ) -> Prompt:
        text = "\n".join([system or "", *(document.text for document in documents), question or ""])
        return Prompt(token_ids=tuple(range(len(text.split()))), text=text)


class FakeEngine:
    """``answers`` maps a question to its answer, or to one answer a policy; ``error`` is raised by every request."""

    def __init__(self, answers: dict[str, str | dict[str, str]] | None = None, error: HypicError | None = None) -> None:
        self.builder = FakeBuilder()
        self.answers = answers or {}
        self.error = error
        self.requests: list[tuple[Prompt, SamplingParams, str]] = []
        self.closed = False

    def generate(self, prompt: Prompt, *, sampling: SamplingParams, policy: str = "hypic") -> Completion:
        if self.error:
            raise self.error
        self.requests.append((prompt, sampling, policy))
        answer = self.answers.get(prompt.text.rsplit("\n", 1)[-1], "not stated")
        text = answer if isinstance(answer, str) else answer[policy]
        reused = 0 if policy == "exact" else REUSED_PER_DOCUMENT
        spans = (SpanReport("document", "sheet", 0, REUSED_PER_DOCUMENT, "hit", reused),)
        report = ReuseReport(
            policy, len(prompt), len(prompt) - reused, 0, reused, spans, ttft_s=0.4 if policy == "exact" else 0.1
        )
        usage = Usage(len(prompt), len(text.split()), reused)
        return Completion(text, tuple(text.encode()), "stop", usage, report)

    def stream(self, prompt: Prompt, *, sampling: SamplingParams, policy: str = "hypic") -> Iterator[StreamChunk]:
        completion = self.generate(prompt, sampling=sampling, policy=policy)
        yield from (StreamChunk(character) for character in completion.text)
        yield StreamChunk("", completion=completion)

    def close(self) -> None:
        self.closed = True


def services(engine: FakeEngine, **others: Any) -> Services:
    """The commands' dependencies with ``engine`` for every model."""
    return Services(load_engine=lambda model, *, policy, threads: engine, **others)
