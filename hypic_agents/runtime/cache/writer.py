"""Writing behind: a thread that takes entries to a lower tier while requests go on. No torch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Generic, Protocol, TypeVar

from hypic_agents.runtime.cache.connection import LOG
from hypic_agents.runtime.cache.disk import Outcome
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey

_DEFERRED_KEPT = 4096
P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)


class Tier(Protocol[P_contra]):
    """Where entries are written; ``P`` is its way to say which invalidations an entry is known to have outlived."""

    def write(self, entry: SegmentEntry, position: P_contra, *, uses: int = 1) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class WriteJob(Generic[P]):
    """An entry to write, the log's position when it was known to be valid, and how often it was wanted."""

    entry: SegmentEntry
    position: P
    uses: int


class WriteBehind(Generic[P]):
    """A queue bounded in bytes, and its thread, which lives only while there is something to write.

    Args:
        tier: Where to write.
        max_bytes: Most bytes of payloads that wait, the one being written included. A single larger one may wait alone.

    Attributes:
        dropped: Entries that were not written, because too much waited or the tier failed.
    """

    def __init__(self, tier: Tier[P], max_bytes: int) -> None:
        self._tier = tier
        self._max_bytes = max_bytes
        self._jobs: OrderedDict[SegmentKey, WriteJob[P]] = OrderedDict()  # the first one may be being written
        self._deferred: OrderedDict[SegmentKey, None] = OrderedDict()
        self._bytes = 0
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = False
        self.dropped = 0

    @property
    def pending_bytes(self) -> int:
        with self._changed:
            return self._bytes

    def put(self, job: WriteJob[P]) -> bool:
        """Queue a job; False if its key waits already, or it was dropped because too much waits."""
        nbytes = job.entry.nbytes
        with self._changed:
            self._deferred.pop(job.entry.key, None)
            if job.entry.key in self._jobs:
                return False
            if self._closed or (self._jobs and self._bytes + nbytes > self._max_bytes):
                self.dropped += 1
                return False
            self._jobs[job.entry.key] = job
            self._bytes += nbytes
            if self._thread is None:
                self._thread = Thread(target=self._run, name="hypic-store-writer", daemon=True)
                self._thread.start()
            return True

    def is_deferred(self, key: SegmentKey) -> bool:
        """Whether the tier did not take ``key`` because it had seen it only once."""
        return key in self._deferred

    def find(self, key: SegmentKey, token_ids: Sequence[int]) -> SegmentEntry | None:
        """A waiting entry."""
        with self._changed:
            job = self._jobs.get(key)
        return job.entry if job is not None and job.entry.token_ids == tuple(token_ids) else None

    def cancel(self, covered: Callable[[SegmentEntry], bool]) -> None:
        """Drop waiting entries; the tier itself sees to one that is being written."""
        with self._changed:
            for key in [key for key, job in self._jobs.items() if covered(job.entry)]:
                self._bytes -= self._jobs.pop(key).entry.nbytes
            self._changed.notify_all()

    def flush(self) -> None:
        """Return once nothing waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._thread is None)

    def close(self) -> None:
        """Write what waits, and take no more."""
        with self._changed:
            self._closed = True
        self.flush()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._jobs:
                    self._thread = None
                    self._changed.notify_all()
                    return
                job = next(iter(self._jobs.values()))
            outcome: Outcome = "failed"
            try:
                outcome = self._tier.write(job.entry, job.position, uses=job.uses)
            except Exception:  # noqa: BLE001  the thread must live: others wait for it
                LOG.exception("a segment could not be written")
            with self._changed:
                self.dropped += outcome == "failed"
                if outcome == "deferred":
                    self._deferred[job.entry.key] = None
                    if len(self._deferred) > _DEFERRED_KEPT:
                        self._deferred.popitem(last=False)
                if self._jobs.get(job.entry.key) is job:
                    del self._jobs[job.entry.key]
                    self._bytes -= job.entry.nbytes
                self._changed.notify_all()
