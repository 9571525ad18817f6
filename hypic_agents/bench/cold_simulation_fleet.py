"""A simulated fleet: requests are routed to a home worker, and their cold segments are built where a policy says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypic_agents.bench.cold_simulation_costs import Costs
from hypic_agents.bench.cold_simulation_placement import Placement
from hypic_agents.bench.cold_simulation_scatter import Job, Record, Scatter
from hypic_agents.bench.cold_simulation_worker import Process, Task, Worker
from hypic_agents.bench.cold_simulation_workload import Arrival
from hypic_agents.errors import HypicError

MAX_ATTEMPTS = 2
_NO_WORKER_S = 1e-2


def require_simpy() -> None:
    """Raise before a long run rather than after it.

    Raises:
        HypicError: simpy is not installed.
    """
    try:
        import simpy  # noqa: F401
    except ImportError as error:
        text = "a simulation needs simpy, which is in the extra 'dev': pip install 'hypic-agents[dev]'"
        raise HypicError(text) from error


class Fleet:
    """Workers behind one router. Each serves requests, and builds segments for others where the placement wants it.

    Args:
        costs: Of the work.
        placement: Who builds what.
        speeds: One worker each; builds and answers take ``1 / speed`` of their costs.
        losses: When each worker is lost, in seconds; none by default.
        away_s: How long a lost worker stays away.
        detect_s: How long it takes a request to notice that a worker is lost.
        apart: All requests have one home that takes no builds, as an engine in front of a pool of processes is.
    """

    def __init__(
        self,
        costs: Costs,
        placement: Placement,
        speeds: Sequence[float],
        *,
        losses: Sequence[Sequence[float]] = (),
        away_s: float = 0.0,
        detect_s: float = 0.0,
        apart: bool = False,
    ) -> None:
        require_simpy()
        import simpy

        self._env = simpy.Environment()
        self._costs = costs
        self._placement = placement
        self._detect_s = detect_s
        # In the order in which they became idle, so that requests go round.
        self._idle: dict[Worker, None] = {}
        self._scatters: list[Scatter] = []
        self._apart = Worker(self._env) if apart else None
        self.workers = [
            Worker(
                self._env,
                speed=speed,
                losses=losses[number] if losses else (),
                away_s=away_s,
                on_change=self._changed,
            )
            for number, speed in enumerate(speeds)
        ]

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return float(self._env.now)

    def run(self, arrivals: Sequence[Arrival]) -> list[Record]:
        """Serve all requests to the end; a record each, in their order."""
        records = [Record(arrival) for arrival in arrivals]
        requests: Any = self._env.run(until=self._env.process(self._receive(records)))
        self._env.run(until=self._env.all_of(requests))
        return records

    def _receive(self, records: Sequence[Record]) -> Process:
        started = []
        for record in records:
            yield self._env.timeout(record.arrival.at_s - self._env.now)
            started.append(self._env.process(self._serve(record)))
        return started

    def _serve(self, record: Record) -> Process:
        arrival = record.arrival
        answer_s = self._costs.answer_s(arrival.live, len(arrival.cold))
        while True:
            home = self._apart or self._route()
            if home is None:
                yield self._env.timeout(_NO_WORKER_S)
                continue
            if not arrival.is_cold or (yield from self._build_all(home, record)):
                record.built_s = self.now - arrival.at_s
                answer = Task(self._env, answer_s, urgent=True)
                home.submit(answer)
                if (yield answer.done):
                    record.ttft_s = self.now - arrival.at_s
                    return
            # The home is lost, and what it held: another one begins again.
            record.restarts += 1
            yield self._env.timeout(self._detect_s)

    def _route(self) -> Worker | None:
        """The worker that has been idle longest, else the one where a request waits least."""
        if self._idle:
            return next(iter(self._idle))
        up = [worker for worker in self.workers if worker.up]
        return min(up, key=lambda worker: worker.request_wait_s) if up else None

    def _build_all(self, home: Worker, record: Record) -> Process:
        """Build the cold segments; False if the home was lost meanwhile."""
        arrival = record.arrival
        predicted = [self._costs.build_s(tokens) for tokens in arrival.cold]
        jobs = [
            Job(tokens, seconds, seconds * noise)
            for tokens, seconds, noise in zip(arrival.cold, predicted, arrival.noise, strict=True)
        ]
        scatter = Scatter(home, record, len(jobs), self._env.event(), builds_at_home=self._apart is None)
        if self._placement.idle_only:
            scatter.wait(jobs)
            self._scatters.append(scatter)
            self._help_itself(scatter)
            self._hand_out()
        else:
            self._queue_all(scatter, jobs)
        yield scatter.finished | home.lost
        if scatter in self._scatters:
            self._scatters.remove(scatter)
        if scatter.left == 0:
            return True
        scatter.stop()
        return False

    def _queue_all(self, scatter: Scatter, jobs: Sequence[Job]) -> None:
        """Queue every job at a worker at once."""
        # From the home on, so that the short queues of several requests lie at different workers.
        start = self.workers.index(scatter.home) if scatter.builds_at_home else 0
        up = [worker for worker in self.workers[start:] + self.workers[:start] if worker.up]
        if not self._placement.scatter or not up:
            up = up[:1] or [scatter.home]
        for place, queue in self._placement.queues([job.predicted_s for job in jobs], len(up)).items():
            for index in queue:
                self._begin(scatter, up[place], jobs[index])

    def _changed(self, worker: Worker) -> None:
        if worker.idle:
            self._idle[worker] = None
            self._hand_out()
        else:
            self._idle.pop(worker, None)

    def _hand_out(self) -> None:
        """Idle workers take the longest job of the request that has the fewest of them."""
        while len(self._idle) > self._placement.spare * len(self.workers):
            waiting = [scatter for scatter in self._scatters if scatter.waiting]
            if not waiting:
                return
            scatter = min(waiting, key=lambda scatter: scatter.running)
            self._begin(scatter, next(reversed(self._idle)), scatter.take())

    def _help_itself(self, scatter: Scatter) -> None:
        """A home always builds for its own request, behind other requests, one segment at a time."""
        if scatter.builds_at_home and scatter.waiting and not scatter.at_home:
            self._begin(scatter, scatter.home, scatter.take())

    def _begin(self, scatter: Scatter, worker: Worker, job: Job) -> None:
        scatter.running += 1
        scatter.at_home += worker is scatter.home
        dispatch_s = 0.0 if worker is scatter.home else self._costs.dispatch_s
        task = Task(self._env, dispatch_s + job.seconds, urgent=False)
        scatter.tasks.append(task)
        worker.submit(task)
        self._env.process(self._follow(scatter, worker, job, task))

    def _follow(self, scatter: Scatter, worker: Worker, job: Job, task: Task) -> Process:
        built = yield task.done
        scatter.running -= 1
        scatter.at_home -= worker is scatter.home
        if scatter.stopped or not scatter.home.up:
            return
        self._help_itself(scatter)
        if built:
            if worker is not scatter.home:
                scatter.record.remote += 1
                with scatter.home.link.request() as turn:
                    yield turn
                    yield self._env.timeout(self._costs.move_s(job.tokens))
            scatter.arrive()
            return
        job.attempts += 1
        scatter.record.lost += 1
        yield self._env.timeout(self._detect_s)
        if not scatter.stopped:
            self._begin(scatter, self._elsewhere(scatter, job), job)

    def _elsewhere(self, scatter: Scatter, job: Job) -> Worker:
        """Another idle worker; without one, or after the last attempt, the home itself."""
        if job.attempts < MAX_ATTEMPTS and self._idle:
            return next(reversed(self._idle))
        scatter.record.local += 1
        return scatter.home
