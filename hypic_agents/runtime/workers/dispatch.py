"""A pool out of a group of workers: one queue, idle workers only, longest job first, one rule for failures.

A job goes to a worker if that pays (its cost exceeds the hop), and is computed here otherwise, or once its retries are
spent, or while no worker is there. Whenever a worker is idle, it takes the longest job of the owner that has the fewest
jobs at workers: for one owner that is LPT, and with several none waits for all jobs of another.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypic_agents.runtime.workers.calibrate import CostGauge, HopGauge
from hypic_agents.runtime.workers.contract import BuildJob, Built, DamagedPayload, WorkerGroup, WorkerResult
from hypic_agents.runtime.workers.errand import Errand, Item
from hypic_agents.runtime.workers.local import LocalPool
from hypic_agents.runtime.workers.schedule import Sample, deadline_s, pays_off


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job may cost.

    Attributes:
        retries: How often a job may be begun again elsewhere before it is computed here.
        deadline_factor: A worker is late after this many times a job's predicted seconds,
        deadline_floor_s: but never before this. Both double each time that a worker was late with the job, and are
            larger until a worker has finished its first.
    """

    retries: int = 2
    deadline_factor: float = 10.0
    deadline_floor_s: float = 10.0


class WorkerPool:
    """A :class:`~hypic_agents.runtime.workers.contract.ColdPrefillPool` over workers.

    Args:
        group: The workers; closed with the pool.
        local: Computes what they do not.
        limits: Deadlines and retries.
        clock: Seconds that never go back.
        hop_s: Seconds of carrying a job and its payload; None measures them.
    """

    def __init__(
        self,
        group: WorkerGroup,
        local: LocalPool,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
        hop_s: float | None = None,
    ) -> None:
        self._group = group
        self._local = local
        self._limits = limits
        self._clock = clock
        self._hop_s = hop_s
        self._queue: list[Item] = []
        self._here: list[Item] = []
        self._errands: dict[int, Errand] = {}  # by the job's id
        self._arrived: list[tuple[WorkerResult, Errand]] = []
        self._built: list[Built] = []
        self._hop = HopGauge()
        self.worker_cost = CostGauge()
        self.local_cost = CostGauge()

    @property
    def spare(self) -> int:
        at_work = {errand.worker for errand in self._errands.values()}  # a payload that is on its way is soon there
        return 0 if self._queue else sum(worker not in at_work for worker in self._group.idle)

    def submit(self, jobs: Sequence[BuildJob]) -> None:
        gauge = self.local_cost if len(self.local_cost) else self.worker_cost
        for job in jobs:
            cost_s = gauge.model.seconds(job.num_tokens, job.context)
            pays = self._hop.pays(cost_s) if self._hop_s is None else pays_off(cost_s, self._hop_s)
            (self._queue if pays else self._here).append(Item(job))
        self._listen()
        self._hand_out()

    def poll(self) -> list[Built]:
        while True:
            self._listen()
            # Workers go on before payloads are taken, also those that finish meanwhile: taking costs them nothing.
            self._hand_out()
            if not self._arrived:
                break
            self._take(*self._arrived[0])
            del self._arrived[0]
        self._give_up_late()
        self._hand_out()
        self._compute_here()
        built, self._built = self._built, []
        return built

    def wait(self, timeout_s: float) -> None:
        if not self._here:
            self._group.wait(timeout_s)

    @property
    def settled(self) -> bool:
        return self._num_ready >= self._group.alive

    def warm_up(self, timeout_s: float) -> int:
        until = self._clock() + timeout_s
        while True:
            self._listen()
            left = until - self._clock()
            if self.settled or left <= 0:
                return self._num_ready
            self._group.wait(min(left, 0.05))

    @property
    def _num_ready(self) -> int:
        return len({*self._group.idle, *(errand.worker for errand in self._errands.values())})

    def cancel(self, job_ids: Sequence[int]) -> None:
        gone = set(job_ids)
        self._built = [one for one in self._built if one.job.id not in gone]
        for _, errand in self._arrived:
            if errand.item is not None and errand.item.job.id in gone:
                errand.item = None
        self._queue = [item for item in self._queue if item.job.id not in gone]
        self._here = [item for item in self._here if item.job.id not in gone]
        for job_id, errand in self._errands.items():
            if job_id in gone and errand.item is not None:
                errand.item = None
                self._group.cancel(errand.worker, job_id)

    def close(self) -> None:
        self._group.close()
        self._queue.clear()
        self._here.clear()
        self._errands.clear()
        self._arrived.clear()

    def _listen(self) -> None:
        for result in self._group.poll():
            self._arrived.append((result, self._errands.pop(result.job_id)))

    def _hand_out(self) -> None:
        idle = self._group.idle
        for worker in idle:
            item = self._next_for(worker)
            if item is not None:
                self._queue.remove(item)
                now = self._clock()
                self._errands[item.job.id] = Errand(worker, item, now, now + self._patience(item))
                self._group.send(worker, item.job)
        if self._queue and not self._errands:
            # Nobody works, and whoever is idle has failed at what is left.
            if not idle and self._group.trouble:
                for item in self._queue:
                    item.problems.append(f"no worker was there: {self._group.trouble}")
            self._here += self._queue
            self._queue = []

    def _patience(self, item: Item) -> float:
        """Seconds that a worker may take for a job.

        What workers finished says nothing of those that are too slow to finish, so this process's own cost counts too.
        """
        job, limits = item.job, self._limits
        cost_s = max(gauge.model.seconds(job.num_tokens, job.context) for gauge in (self.worker_cost, self.local_cost))
        factor, floor_s = limits.deadline_factor, limits.deadline_floor_s
        return deadline_s(cost_s, factor=factor, floor_s=floor_s, late=item.late, is_first=not len(self.worker_cost))

    def _next_for(self, worker: int) -> Item | None:
        """The longest job of the owner with the fewest jobs at workers; of equal ones, the oldest."""
        at_work = Counter(e.item.job.owner for e in self._errands.values() if e.item is not None)
        fit = [item for item in self._queue if worker not in item.avoid]
        cost = self.worker_cost.model.seconds
        return min(
            fit, key=lambda i: (at_work[i.job.owner], i.job.owner, -cost(i.job.num_tokens, i.job.context)), default=None
        )

    def _take(self, result: WorkerResult, errand: Errand) -> None:
        """Take a payload in, or see to it that the job is begun again."""
        item = errand.item
        if item is None:
            return
        if result.load is None:
            self._again(item, result.worker, result.problem)
            return
        try:
            payload = result.load()
        except DamagedPayload as error:
            self._again(item, result.worker, f"worker {result.worker} returned {error}")
            self._end(result.worker)
            return
        except Exception as error:  # noqa: BLE001  whatever it is, the job can be computed elsewhere
            problem = f"the payload of worker {result.worker} cannot be taken: {type(error).__name__}: {error}"
            self._again(item, result.worker, problem)
            return
        job = item.job
        if result.build_s > 0:  # it was computed now, not fetched from where it was kept
            self.worker_cost.add(Sample(job.num_tokens, result.build_s, job.context))
        self._hop.add(self._clock() - errand.sent_s - result.build_s)
        self._built.append(Built(job, payload, "worker", result.build_s, item.retries, tuple(item.problems)))

    def _again(self, item: Item, worker: int, problem: str) -> None:
        item.problems.append(problem)
        item.avoid.add(worker)
        item.retries += 1
        (self._here if item.retries > self._limits.retries else self._queue).append(item)

    def _give_up_late(self) -> None:
        now = self._clock()
        while late := next((one for one in self._errands.values() if now >= one.due_s), None):
            item, late.item = late.item, None
            self._end(late.worker)
            if item is not None:
                item.late += 1
                problem = f"worker {late.worker} did not answer within {now - late.sent_s:.3g} s"
                self._again(item, late.worker, problem)

    def _end(self, worker: int) -> None:
        """End a worker. What else it was given goes back to the queue; that is no retry."""
        self._group.abandon(worker)
        for job_id in [job_id for job_id, errand in self._errands.items() if errand.worker == worker]:
            item = self._errands.pop(job_id).item
            if item is not None:
                self._queue.append(item)

    def _compute_here(self) -> None:
        items = {item.job.id: item for item in self._here}
        for one in self._local.compute([item.job for item in self._here]):
            item = items[one.job.id]
            if one.error is None:
                self.local_cost.add(Sample(one.job.num_tokens, one.build_s, one.job.context))
            self._built.append(replace(one, retries=item.retries, problems=tuple(item.problems)))
        self._here = []
