"""What a pool keeps of a job on its way: its history, and which worker has it since when. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypic_agents.runtime.workers.contract import BuildJob


@dataclass(slots=True, eq=False)
class Item:
    """A job on its way, and what happened to it so far."""

    job: BuildJob
    retries: int = 0
    late: int = 0
    problems: list[str] = field(default_factory=list)
    avoid: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Errand:
    """What a worker was given; ``item`` is None once nobody wants it."""

    worker: int
    item: Item | None
    sent_s: float
    due_s: float
