"""Who runs next: first come, first served, within the decode batch and the pass's token budget. No torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Schedulable(Protocol):
    """What the schedule needs to know of a request."""

    @property
    def done(self) -> bool: ...


R = TypeVar("R", bound=Schedulable)


class Schedule(Generic[R]):
    """Waiting, building and running requests: ``add`` -> waiting -> ``admit`` -> building -> ``take`` -> running.

    Args:
        max_batch: Most requests building or running at once.
        max_pass_tokens: Most live tokens of one admission, and of one prefill pass; the first request always goes.
    """

    def __init__(self, max_batch: int, max_pass_tokens: int) -> None:
        self._max_batch = max_batch
        self._max_pass_tokens = max_pass_tokens
        self.waiting: deque[tuple[R, int]] = deque()
        self.building: deque[tuple[R, int]] = deque()
        self.running: list[R] = []

    def add(self, request: R, num_live: int) -> None:
        """Queue a request whose prefill computes ``num_live`` tokens."""
        self.waiting.append((request, num_live))

    def admit(self) -> list[R]:
        """Requests whose entries are to be built now; they take a place in the batch from here on."""
        admitted: list[R] = []
        tokens = 0
        while self.waiting and len(self.running) + len(self.building) < self._max_batch:
            request, num_live = self.waiting[0]
            if admitted and tokens + num_live > self._max_pass_tokens:
                break
            self.waiting.popleft()
            if request.done:
                continue
            tokens += num_live
            admitted.append(request)
            self.building.append((request, num_live))
        return admitted

    def take(self, is_ready: Callable[[R], bool]) -> list[R]:
        """Requests to prefill now: those whose entries are there, however long others still wait for theirs."""
        taken: list[R] = []
        left: deque[tuple[R, int]] = deque()
        tokens = 0
        for request, num_live in self.building:
            fits = not taken or tokens + num_live <= self._max_pass_tokens
            if not request.done and fits and is_ready(request) and not request.done:
                tokens += num_live
                taken.append(request)
            else:
                left.append((request, num_live))
        self.building = left
        self.running.extend(taken)
        return taken

    def retire(self) -> list[R]:
        """Take finished requests out of those that build or run."""
        finished = [r for r, _ in self.building if r.done] + [r for r in self.running if r.done]
        self.building = deque((r, n) for r, n in self.building if not r.done)
        self.running = [r for r in self.running if not r.done]
        return finished

    @property
    def unfinished(self) -> list[R]:
        """Every request that was added and not retired."""
        return [r for r, _ in (*self.waiting, *self.building)] + self.running

    @property
    def idle(self) -> bool:
        return not self.unfinished
