"""The cold segments of one simulated request on their way, and what became of the request."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypic_agents.bench.cold_simulation_worker import Task, Worker
from hypic_agents.bench.cold_simulation_workload import Arrival
from hypic_agents.runtime.workers.schedule import longest_first

if TYPE_CHECKING:
    import simpy


@dataclass(slots=True)
class Job:
    """A cold segment to build: what it is predicted to take, what it takes, and how often a worker was lost over it."""

    tokens: int
    predicted_s: float
    seconds: float
    attempts: int = 0


@dataclass(slots=True)
class Record:
    """What became of a request.

    Attributes:
        arrival: The request.
        built_s, ttft_s: Seconds from its arrival until all its payloads were there, and until its first token.
        remote: Segments that came from other workers.
        lost: Builds that a lost worker took with it.
        local: Builds that the home did in the end, because no other worker could.
        restarts: How often the home itself was lost.
    """

    arrival: Arrival
    built_s: float = 0.0
    ttft_s: float = 0.0
    remote: int = 0
    lost: int = 0
    local: int = 0
    restarts: int = 0


@dataclass(slots=True, eq=False)
class Scatter:
    """The builds of one request for one home.

    Attributes:
        home: Where the payloads are wanted.
        record: What becomes of the request.
        left: Payloads that are not there yet.
        finished: Triggered when the last one is.
        builds_at_home: The home takes builds.
        running, at_home: Builds that were given to workers, and to the home among them.
        stopped: Nobody wants the payloads any more.
        waiting: Builds that no worker has, longest first.
        tasks: Everything that was given to workers.
    """

    home: Worker
    record: Record
    left: int
    finished: simpy.Event
    builds_at_home: bool = True
    running: int = 0
    at_home: int = 0
    stopped: bool = False
    waiting: deque[Job] = field(default_factory=deque)
    tasks: list[Task] = field(default_factory=list)

    def wait(self, jobs: Sequence[Job]) -> None:
        """Let jobs wait for workers, longest first."""
        self.waiting.extend(jobs[index] for index in longest_first([job.predicted_s for job in jobs]))

    def take(self) -> Job:
        """The longest job that waits."""
        return self.waiting.popleft()

    def arrive(self) -> None:
        """One more payload is there."""
        self.left -= 1
        if self.left == 0 and not self.stopped:
            self.finished.succeed()

    def stop(self) -> None:
        """Nobody wants the payloads any more; what runs runs on, what waits is dropped."""
        self.stopped = True
        for task in self.tasks:
            task.cancelled = True
        self.waiting.clear()
