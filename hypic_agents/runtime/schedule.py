"""Who runs next: first come, first served, within the decode batch and the pass's token budget. No torch."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar


class Schedulable(Protocol):
    """What the schedule needs to know of a request."""

    @property
    def done(self) -> bool: ...


R = TypeVar("R", bound=Schedulable)


class Schedule(Generic[R]):
    """Waiting and running requests.

    Args:
        max_batch: Most requests running at once.
        max_pass_tokens: Most live tokens admitted to one prefill pass; the first request is always admitted.
    """

    def __init__(self, max_batch: int, max_pass_tokens: int) -> None:
        self._max_batch = max_batch
        self._max_pass_tokens = max_pass_tokens
        self.waiting: deque[tuple[R, int]] = deque()
        self.running: list[R] = []

    def add(self, request: R, num_live: int) -> None:
        """Queue a request whose prefill computes ``num_live`` tokens."""
        self.waiting.append((request, num_live))

    def admit(self) -> list[R]:
        """Requests to prefill now; they count as running from here on."""
        admitted: list[R] = []
        tokens = 0
        while self.waiting and len(self.running) + len(admitted) < self._max_batch:
            request, num_live = self.waiting[0]
            if admitted and tokens + num_live > self._max_pass_tokens:
                break
            self.waiting.popleft()
            if request.done:
                continue
            tokens += num_live
            admitted.append(request)
        self.running.extend(admitted)
        return admitted

    def retire(self) -> list[R]:
        """Take finished requests out of the running ones."""
        finished = [r for r in self.running if r.done]
        self.running = [r for r in self.running if not r.done]
        return finished

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running
