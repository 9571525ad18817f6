"""The verbs that wait: each caller drives the shared loop until its own request is done."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence

from hypic_agents.completion import Completion, StreamChunk
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.runtime.policy import ReusePolicy
from hypic_agents.runtime.request import Request

GREEDY = SamplingParams()
_TURN_S = 0.001  # a lock goes to whoever asks first, which is seldom a thread that has to wake up


class BlockingVerbs(ABC):
    """What follows from queueing a request, one step of the loop, cancelling, and warming a pass at a time."""

    @abstractmethod
    def submit(
        self, prompt: Prompt, sampling: SamplingParams = GREEDY, policy: ReusePolicy | str | None = None
    ) -> Request: ...

    @abstractmethod
    def step(self) -> list[Request]: ...

    @abstractmethod
    def cancel(self, request: Request) -> None: ...

    @abstractmethod
    def warming(self, prompts: Sequence[Prompt], policy: ReusePolicy | str | None = None) -> Generator[None, None, int]:
        """:meth:`warm` a pass at a time: yields where other work may be done, or :meth:`wait` be called."""

    @abstractmethod
    def wait(self) -> None:
        """Return once builds may have come, and soon in any case."""

    def warm(self, prompts: Sequence[Prompt], policy: ReusePolicy | str | None = None) -> int:
        """Build the entries that these prompts need; returns how many were new. Others submit and step meanwhile."""
        passes = self.warming(prompts, policy)
        while True:
            try:
                next(passes)
            except StopIteration as end:
                return int(end.value)
            self.wait()
            time.sleep(_TURN_S)

    def generate(
        self, prompt: Prompt, sampling: SamplingParams = GREEDY, policy: ReusePolicy | str | None = None
    ) -> Completion:
        """Answer one prompt. Raises what :meth:`submit` raises, or the request's own error."""
        return self.generate_batch([prompt], sampling, policy)[0]

    def generate_batch(
        self, prompts: Sequence[Prompt], sampling: SamplingParams = GREEDY, policy: ReusePolicy | str | None = None
    ) -> list[Completion]:
        """Answer several prompts together, in the order given. Where one fails, all are given up."""
        requests: list[Request] = []
        try:
            for prompt in prompts:
                requests.append(self.submit(prompt, sampling, policy))  # noqa: PERF401  known, if a later one is refused
            return [self._finish(request) for request in requests]
        finally:
            for request in requests:
                self.cancel(request)

    def stream(
        self, prompt: Prompt, sampling: SamplingParams = GREEDY, policy: ReusePolicy | str | None = None
    ) -> Iterator[StreamChunk]:
        """Pieces of text as they come; the last chunk carries the completion. Closing the iterator cancels."""
        request = self.submit(prompt, sampling, policy)
        try:
            while not request.done:
                self.step()
                while request.pieces:
                    yield StreamChunk(request.pieces.pop(0))
            yield StreamChunk("", completion=self._finish(request))
        finally:
            self.cancel(request)

    def _finish(self, request: Request) -> Completion:
        while not request.done:
            self.step()
        if request.error is not None:
            raise request.error
        assert request.completion is not None
        return request.completion
