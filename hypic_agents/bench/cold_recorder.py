"""What a pool does while it is measured: its builds, and the time from handing them out to the last payload."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from hypic_agents.runtime.cache.entry import Payload
from hypic_agents.runtime.workers.contract import BuildJob, Built, ColdPrefillPool
from hypic_agents.runtime.workers.wire import decode_payload, encode_payload, to_bytes

_LINK_REPEATS = 5


@dataclass(frozen=True, slots=True)
class _Run:
    """One prompt's builds: what its segments took together, and before them the prefix that they are built behind."""

    prefix_s: float
    seconds: float
    built: tuple[Built, ...]


class Recorder:
    """A pool that remembers. A run is what happens between two times at which nothing is under way."""

    def __init__(self, pool: ColdPrefillPool, num_workers: int) -> None:
        self.num_workers = num_workers
        self._pool = pool
        self._open: set[int] = set()
        self._started = 0.0
        self._prefix_s = 0.0
        self._current: list[Built] = []
        self._runs: list[_Run] = []

    @property
    def spare(self) -> int:
        return self._pool.spare

    @property
    def settled(self) -> bool:
        return self._pool.settled

    def submit(self, jobs: Sequence[BuildJob]) -> None:
        if not self._open:
            # A prefix and what is built behind it are two submissions of one prompt.
            now = time.perf_counter()
            behind = all(one.job.is_prefix for one in self._current) and any(job.prefix_ids for job in jobs)
            self._prefix_s = now - self._started if self._current and behind else 0.0
            self._started, self._current = now, []
        self._open |= {job.id for job in jobs}
        self._pool.submit(jobs)

    def poll(self) -> list[Built]:
        built = self._pool.poll()
        self._open -= {one.job.id for one in built}
        self._current += built
        if self._open and any(one.job.is_prefix for one in built):
            # Some were begun before it was there: what they gained thereby counts for the segments.
            now = time.perf_counter()
            self._prefix_s, self._started = now - self._started, now
            self._current = [one for one in self._current if not one.job.is_prefix]
        if built and not self._open and not all(one.job.is_prefix for one in self._current):
            self._runs.append(_Run(self._prefix_s, time.perf_counter() - self._started, tuple(self._current)))
        return built

    def wait(self, timeout_s: float) -> None:
        self._pool.wait(timeout_s)

    def warm_up(self, timeout_s: float) -> int:
        return self._pool.warm_up(timeout_s)

    def cancel(self, job_ids: Sequence[int]) -> None:
        self._open -= set(job_ids)
        self._pool.cancel(job_ids)

    def close(self) -> None:
        self._pool.close()

    def makespan(self, last: int) -> float:
        """Median seconds from handing out a prompt's segments to holding the last of them, over the last runs."""
        return median(run.seconds for run in self._runs[-last:])

    def prefix_s(self, last: int) -> float:
        """Median seconds before that, until what the segments are built behind was there."""
        return median(run.prefix_s for run in self._runs[-last:])

    def jobs(self, last: int) -> list[dict[str, Any]]:
        """Builds of the last runs' median one, so that they fit :meth:`makespan`."""
        runs = sorted(self._runs[-last:], key=lambda run: run.seconds)
        return [
            {
                "tokens": one.job.num_tokens,
                "seconds": one.build_s,
                "bytes": one.payload.nbytes if one.payload is not None else 0,
            }
            for one in runs[len(runs) // 2].built
            if not one.job.is_prefix
        ]

    @property
    def last_payload(self) -> Payload:
        payload = self._runs[-1].built[-1].payload
        assert payload is not None
        return payload


def measure_link(payload: Payload) -> float:
    """Bytes of a payload that this process takes in a second over a link that brings them: copy and checksum included.

    What comes from another machine is copied; from a process of this one it is mapped, which takes less.
    """
    raw = to_bytes(encode_payload(payload))
    seconds = []
    for _ in range(_LINK_REPEATS):
        started = time.perf_counter()
        decode_payload(bytearray(raw))
        seconds.append(time.perf_counter() - started)
    return payload.nbytes / median(seconds)
