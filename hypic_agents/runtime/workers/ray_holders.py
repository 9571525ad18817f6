"""Which Ray actor holds which payload, so that the others fetch it instead of computing it again."""

from __future__ import annotations

from collections import OrderedDict

from hypic_agents.runtime.workers.contract import BuildJob
from hypic_agents.runtime.workers.ray_actor import Actor


class RayHolders:
    """The latest actors that are known to hold payloads, by the name a job gives its own (``BuildJob.hold``).

    What is told here may be outdated: actors drop payloads to keep their budget, and say so only when asked.

    Args:
        capacity: How many names are kept.
    """

    def __init__(self, capacity: int = 4_096) -> None:
        self._capacity = capacity
        self._actors: OrderedDict[str, Actor] = OrderedDict()

    def find(self, job: BuildJob) -> Actor | None:
        """The actor to fetch a job's payload from; None where it has to be computed."""
        holder = self._actors.get(job.hold) if job.hold else None
        return holder if holder is not None and holder.state in ("idle", "busy") else None

    def note(self, job: BuildJob, actor: Actor) -> None:
        """The actor holds the job's payload, if the job has it held at all."""
        if not job.hold:
            return
        self._actors[job.hold] = actor
        self._actors.move_to_end(job.hold)
        while len(self._actors) > self._capacity:
            self._actors.popitem(last=False)

    def forget(self, job: BuildJob) -> None:
        """The job's payload is held no more."""
        self._actors.pop(job.hold, None)

    def drop(self, actor: Actor) -> None:
        """The actor was lost, and all that it held with it."""
        self._actors = OrderedDict((name, holder) for name, holder in self._actors.items() if holder is not actor)

    def clear(self) -> None:
        self._actors.clear()
