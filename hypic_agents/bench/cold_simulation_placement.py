"""Who builds a request's cold segments: the policies that a simulation compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypic_agents.runtime.workers.schedule import lpt


@dataclass(frozen=True, slots=True)
class Placement:
    """A policy.

    Attributes:
        name: In tables.
        scatter: Builds may run on other workers than the request's own.
        idle_only: As pools do it: a worker that is idle takes the longest job that waits. Otherwise every job is queued
            at a worker at once, whatever that worker has to do.
        longest_first: Queued by LPT on predicted costs; else in turn.
        spare: Share of all workers that builds leave idle for requests to come.
    """

    name: str
    scatter: bool = True
    idle_only: bool = False
    longest_first: bool = True
    spare: float = 0.0

    def queues(self, costs: Sequence[float], workers: int) -> dict[int, tuple[int, ...]]:
        """The jobs that are queued at each of ``workers`` at once, in order."""
        if self.longest_first:
            return lpt(costs, range(workers))
        return {worker: tuple(range(worker, len(costs), workers)) for worker in range(workers)}


SINGLE = Placement("single worker", scatter=False)
LPT_IDLE = Placement("LPT, idle workers", idle_only=True)
LPT_SPARE = Placement("LPT, idle workers but a quarter", idle_only=True, spare=0.25)
LPT_ALL = Placement("LPT, all workers")
ROUND_ROBIN = Placement("round robin, all workers", longest_first=False)
POLICIES = (SINGLE, LPT_IDLE, LPT_SPARE, LPT_ALL, ROUND_ROBIN)
