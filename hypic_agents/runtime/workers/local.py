"""The form without workers: queued jobs in packed varlen passes, in the engine's own process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.workers.compute import compute
from hypic_agents.runtime.workers.contract import BuildJob, Built

# Larger passes leave the caches of a CPU and touch fresh memory in every layer; see ops.blockwise.
_MOST_CPU_TOKENS: Final = 1024


class LocalPool:
    """Computes one pass at each ``poll``, so that requests that run already decode in between. Owners take turns.

    Args:
        model: The engine's own.
        max_pass_tokens: Most tokens of one packed pass, on a CPU 1,024; a single longer job still runs alone.
    """

    def __init__(self, model: HybridModel, max_pass_tokens: int) -> None:
        self._model = model
        on_cpu = model.device.type == "cpu"
        self._max_pass_tokens = min(max_pass_tokens, _MOST_CPU_TOKENS) if on_cpu else max_pass_tokens
        self._queue: dict[int, BuildJob] = {}
        self._turns: list[int] = []

    @property
    def spare(self) -> int:
        return 0

    def submit(self, jobs: Sequence[BuildJob]) -> None:
        self._queue |= {job.id: job for job in jobs}
        self._turns += sorted({job.owner for job in jobs}.difference(self._turns))

    def poll(self) -> list[Built]:
        jobs = self._next()
        built = self.compute(jobs)
        for job in jobs:  # only now: Ctrl-C may strike before
            del self._queue[job.id]
        owners = {job.owner for job in self._queue.values()}
        self._turns = [owner for owner in self._turns[1:] + self._turns[:1] if owner in owners]
        return built

    def wait(self, timeout_s: float) -> None:
        """There is nobody to wait for."""

    @property
    def settled(self) -> bool:
        return True

    def warm_up(self, timeout_s: float) -> int:  # noqa: ARG002  the contract's
        return 0

    def cancel(self, job_ids: Sequence[int]) -> None:
        for job_id in job_ids:
            self._queue.pop(job_id, None)

    def close(self) -> None:
        self._queue.clear()
        self._turns.clear()

    def compute(self, jobs: Sequence[BuildJob]) -> list[Built]:
        """Every job's outcome, in passes of like lengths."""
        # Longest first, so that rows of one pass have like lengths and the chain has few empty steps.
        todo = sorted(jobs, key=lambda job: -job.num_tokens)
        built: list[Built] = []
        while todo:
            some = self._fill(todo)
            built += self._pass(some, sum(job.num_tokens for job in some))
            todo = todo[len(some) :]
        return built

    def _next(self) -> Sequence[BuildJob]:
        """The jobs of one pass: the longest of the owner whose turn it is, then those of the next owners."""
        turn = {owner: i for i, owner in enumerate(self._turns)}
        return self._fill(sorted(self._queue.values(), key=lambda job: (turn[job.owner], -job.num_tokens)))

    def _fill(self, jobs: Sequence[BuildJob]) -> Sequence[BuildJob]:
        """As many of the first jobs as one pass takes."""
        count, tokens = 0, 0
        while count < len(jobs) and (count == 0 or tokens < self._max_pass_tokens):
            tokens += jobs[count].num_tokens
            count += 1
        return jobs[:count]

    def _pass(self, jobs: Sequence[BuildJob], tokens: int) -> list[Built]:
        """One pass; if it fails, each job is tried alone, so that only the culprit fails."""
        try:
            payloads, seconds = compute(self._model, jobs)
        except Exception as error:  # noqa: BLE001  whatever failed must not take the other jobs down
            if len(jobs) == 1:
                return [Built(jobs[0], None, "local", 0.0, error=error)]
            return [one for job in jobs for one in self._pass([job], job.num_tokens)]
        return [
            Built(job, payload, "local", seconds * job.num_tokens / tokens)
            for job, payload in zip(jobs, payloads, strict=True)
        ]
