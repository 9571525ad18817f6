"""Waiting for one request's answer, in a thread or on an event loop. No torch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from hypic_agents.completion import Completion
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import RequestTimeout

if TYPE_CHECKING:
    from hypic_agents.runtime.policy import ReusePolicy
    from hypic_agents.runtime.request import Request


@dataclass(frozen=True, slots=True)
class Event:
    """News of one request: new text, or how it ended. ``error`` and ``completion`` exclude each other."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    completion: Completion | None = None
    error: BaseException | None = None

    @property
    def last(self) -> bool:
        return self.completion is not None or self.error is not None


def _nobody(_event: Event) -> None:
    """Who listens to a job that nobody waits for."""


@dataclass(slots=True, eq=False)
class Job:
    """A request on its way through the driver.

    Attributes:
        streams: Whether text is wanted before the end.
        timeout_s: Seconds it may take, counted from when the job was made.
        sink: Called on the driver's thread with every event; returns at once.
    """

    prompt: Prompt
    sampling: SamplingParams
    policy: ReusePolicy | str | None
    streams: bool
    timeout_s: float | None = None
    started_s: float = field(default_factory=time.monotonic)
    sink: Callable[[Event], None] = _nobody
    request: Request | None = None
    num_sent: int = 0
    cancelled: bool = False

    def remaining_s(self) -> float | None:
        """Seconds left; 0 where none are."""
        return None if self.timeout_s is None else max(0.0, self.started_s + self.timeout_s - time.monotonic())

    def late(self) -> RequestTimeout:
        assert self.timeout_s is not None
        return RequestTimeout(self.timeout_s)


class Driver(Protocol):
    """Who works on jobs."""

    def submit(self, job: Job) -> None: ...

    def cancel(self, job: Job) -> None: ...


def events(driver: Driver, job: Job) -> Generator[Event, None, None]:
    """The job's events up to its completion. Closing the generator cancels the job.

    Raises:
        RequestTimeout: It took too long; the job is cancelled.
        HypicError: The job's own error.
    """
    news: SimpleQueue[Event] = SimpleQueue()
    job.sink = news.put
    ended = False
    try:
        driver.submit(job)  # inside: Ctrl-C may strike between this line and the next
        while not ended:
            try:
                event = news.get(timeout=job.remaining_s())
            except Empty:
                raise job.late() from None
            ended = event.last
            if event.error is not None:
                raise event.error
            yield event
    finally:
        if not ended:
            driver.cancel(job)


async def async_events(driver: Driver, job: Job) -> AsyncGenerator[Event, None]:
    """As :func:`events`, on the running event loop. Cancelling the task cancels the job too."""
    loop = asyncio.get_running_loop()
    news: asyncio.Queue[Event] = asyncio.Queue()

    def tell(event: Event) -> None:
        loop.call_soon_threadsafe(news.put_nowait, event)

    job.sink = tell
    driver.submit(job)
    ended = False
    try:
        while not ended:
            event = await _next(news, job)
            ended = event.last
            if event.error is not None:
                raise event.error
            yield event
    finally:
        if not ended:
            driver.cancel(job)


async def _next(news: asyncio.Queue[Event], job: Job) -> Event:
    if not news.empty():
        return news.get_nowait()
    try:
        async with asyncio.timeout(job.remaining_s()):
            return await news.get()
    except TimeoutError:
        raise job.late() from None
