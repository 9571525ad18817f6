"""A group of workers that do what a test says, when it says so; jobs and payloads without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypic_agents.runtime.cache.entry import Payload
from hypic_agents.runtime.workers.contract import BuildJob, Built, DamagedPayload, WorkerResult


@dataclass(frozen=True)
class Stub:
    """A payload that says who made it."""

    what: str
    nbytes: int = 10


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def job(number: int, num_tokens: int = 100, owner: int = 0) -> BuildJob:
    return BuildJob(number, tuple(range(num_tokens)), 0, 0, owner=owner)


class ScriptedGroup:
    """Workers hold jobs until ``answer``, ``fail``, ``damage`` or ``lose``; ``compute`` leaves a payload on its way."""

    def __init__(self, num_workers: int, *, ready: bool = True) -> None:
        self.jobs: dict[int, BuildJob] = {}  # what each computes
        self.coming: dict[int, BuildJob] = {}  # what each has computed, and not yet sent
        self.sent: list[tuple[int, int]] = []
        self.cancelled: list[int] = []
        self.abandoned: list[int] = []
        self.absent: set[int] = set() if ready else set(range(num_workers))
        self.gone: set[int] = set()
        self.trouble = ""
        self.closed = False
        self._workers = range(num_workers)
        self._news: list[WorkerResult] = []

    @property
    def idle(self) -> tuple[int, ...]:
        untold = {one.worker for one in self._news}
        return tuple(w for w in self._workers if w not in self.absent | self.gone | untold | set(self.jobs))

    @property
    def alive(self) -> int:
        return len(self._workers) - len(self.gone)

    def send(self, worker: int, job: BuildJob) -> None:
        assert worker in self.idle
        self.jobs[worker] = job
        self.sent.append((worker, job.id))

    def poll(self) -> list[WorkerResult]:
        news, self._news = self._news, []
        return news

    def wait(self, timeout_s: float) -> None:
        pass

    def cancel(self, worker: int, job_id: int) -> None:
        if job_id in [one.id for one in self.held(worker)]:
            self.cancelled.append(job_id)

    def abandon(self, worker: int) -> None:
        self.abandoned.append(worker)
        self.jobs.pop(worker, None)
        self.coming.pop(worker, None)
        self.absent.add(worker)

    def held(self, worker: int) -> list[BuildJob]:
        """What a worker has not answered, in the order it was sent."""
        return [jobs[worker] for jobs in (self.coming, self.jobs) if worker in jobs]

    def close(self) -> None:
        self.closed = True

    def compute(self, worker: int) -> None:
        self.coming[worker] = self.jobs.pop(worker)

    def answer(self, worker: int, build_s: float = 0.01) -> None:
        made = self._next(worker)
        self._news.append(WorkerResult(worker, made.id, lambda: Stub(f"worker {worker}"), build_s))

    def damage(self, worker: int) -> None:
        def load() -> Payload:
            raise DamagedPayload("a damaged payload: the checksum does not match")

        self._news.append(WorkerResult(worker, self._next(worker).id, load, 0.01))

    def fail(self, worker: int) -> None:
        made = self._next(worker)
        self._news.append(WorkerResult(worker, made.id, None, problem=f"worker {worker} failed"))

    def lose(self, worker: int) -> None:
        self.trouble = f"worker {worker} was lost"
        for made in self.held(worker):
            self._news.append(WorkerResult(worker, made.id, None, problem=self.trouble, lost=True))
        self.jobs.pop(worker, None)
        self.coming.pop(worker, None)
        self.absent.add(worker)

    def _next(self, worker: int) -> BuildJob:
        return self.coming.pop(worker) if worker in self.coming else self.jobs.pop(worker)


class StubLocal:
    """Computes at once, and remembers what."""

    def __init__(self) -> None:
        self.computed: list[int] = []

    def compute(self, jobs: Sequence[BuildJob]) -> list[Built]:
        self.computed += [one.id for one in jobs]
        return [Built(one, Stub("here"), "local", 0.01) for one in jobs]
