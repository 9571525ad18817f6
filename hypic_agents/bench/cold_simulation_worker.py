"""A simulated worker: serves one task at a time, requests before builds, and is lost and comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import simpy

Process = Generator[Any, Any, Any]


class Task:
    """Work of ``seconds`` at speed 1. ``done`` is triggered with True, or with False if the worker was lost."""

    __slots__ = ("cancelled", "done", "seconds", "urgent")

    def __init__(self, env: simpy.Environment, seconds: float, *, urgent: bool) -> None:
        self.seconds = seconds
        self.urgent = urgent
        self.done = env.event()
        self.cancelled = False


class Worker:
    """One engine. A running task is never interrupted but by the worker's loss.

    Args:
        env: The simulated clock.
        speed: Work it does in a second.
        losses: When it is lost, in seconds; losses while it is away do not count.
        away_s: How long it stays away.
        on_change: Told whenever it may have become idle, or ceased to be.
    """

    def __init__(
        self,
        env: simpy.Environment,
        *,
        speed: float = 1.0,
        losses: Sequence[float] = (),
        away_s: float = 0.0,
        on_change: Callable[[Worker], None] = lambda _: None,
    ) -> None:
        import simpy

        self._env = env
        self._interrupted = simpy.Interrupt
        self.speed = speed
        self.up = True
        self.busy_s = 0.0
        self.lost = env.event()
        self.link = simpy.Resource(env, 1)  # what comes in over it comes one after the other
        self._away_s = away_s
        self._on_change = on_change
        self._urgent: deque[Task] = deque()
        self._builds: deque[Task] = deque()
        self._running: Task | None = None
        self._ends_s = 0.0
        self._wake = env.event()
        self._process = env.process(self._run())
        if losses:
            env.process(self._lose(losses))

    @property
    def idle(self) -> bool:
        return self.up and self._running is None and not self._urgent and not self._builds

    @property
    def request_wait_s(self) -> float:
        """How long a request that came now would wait here; builds that wait would wait longer."""
        if self._running is None:
            return 0.0
        queued = sum(task.seconds for task in self._urgent)
        return max(0.0, self._ends_s - self._env.now) + queued / self.speed

    @property
    def build_wait_s(self) -> float:
        """How long a build that came now would wait here if no request came in between."""
        return self.request_wait_s + sum(task.seconds for task in self._builds) / self.speed

    def submit(self, task: Task) -> None:
        """Queue a task; it is lost at once if the worker is away."""
        if not self.up:
            task.done.succeed(False)
            return
        (self._urgent if task.urgent else self._builds).append(task)
        if not self._wake.triggered:
            self._wake.succeed()
        self._on_change(self)

    def _run(self) -> Process:
        while True:
            try:
                yield from self._serve()
            except self._interrupted:
                self._drop_all()
                yield self._env.timeout(self._away_s)
                self.up, self.lost = True, self._env.event()

    def _serve(self) -> Process:
        while True:
            task = self._next()
            if task is None:
                self._wake = self._env.event()
                self._on_change(self)
                yield self._wake
                continue
            self._running, started = task, self._env.now
            self._ends_s = started + task.seconds / self.speed
            try:
                yield self._env.timeout(task.seconds / self.speed)
            finally:
                self.busy_s += self._env.now - started
            self._running = None
            task.done.succeed(True)

    def _next(self) -> Task | None:
        for queue in (self._urgent, self._builds):
            while queue:
                task = queue.popleft()
                if not task.cancelled:
                    return task
                task.done.succeed(False)
        return None

    def _lose(self, losses: Sequence[float]) -> Process:
        for at in losses:
            yield self._env.timeout(max(0.0, at - self._env.now))
            if self.up:
                self.up = False
                self._process.interrupt()

    def _drop_all(self) -> None:
        for task in (self._running, *self._urgent, *self._builds):
            if task is not None:
                task.done.succeed(False)
        self._running = None
        self._urgent.clear()
        self._builds.clear()
        self.lost.succeed()
        self._on_change(self)
