"""Cold prefill: the entries that a plan needs and the store lacks, each built once, whoever waits for it.

Prefixes come first, because conditioned segments are built behind them. Entries are published whole or not at all,
one by one, as they arrive from the pool.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import count

from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.flight import Flight, Ticket, counted, find_prefix, is_conditioned, make_entry, make_job
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.plan import Build
from hypic_agents.runtime.workers.contract import Built, ColdPrefillPool
from hypic_agents.runtime.workers.local import LocalPool

_WAIT_S = 0.05


class Builder:
    """Finds or makes entries; every entry it hands out is pinned until its ticket is released.

    Args:
        model: Computes where ``pool`` is not given.
        store: Keeps the entries.
        fingerprint: Names the model in keys.
        max_pass_tokens: Most tokens of one packed pass in this process.
        pool: Computes what is missing; in this process if none is given. Closed by whoever made it.
    """

    def __init__(
        self,
        model: HybridModel,
        store: SegmentStore,
        fingerprint: str,
        max_pass_tokens: int,
        pool: ColdPrefillPool | None = None,
    ) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._pool = LocalPool(model, max_pass_tokens) if pool is None else pool
        self._ids = count(1)
        # By epoch too: what an invalidation has overtaken serves those who waited before, and nobody else.
        self._flights: dict[tuple[SegmentKey, int], Flight] = {}
        self._flying: dict[int, Flight] = {}
        self._built: deque[Built] = deque()

    def key(self, build: Build) -> SegmentKey:
        return build.key(self._fingerprint)

    def start(self, builds: Sequence[Build]) -> Ticket:
        """Pin what the store has, and send for the rest; returns at once."""
        ticket = Ticket(next(self._ids))
        try:
            epoch = self._store.epoch
            wanted = {self.key(build): build for build in builds}
            unknown = [(key, build.token_ids) for key, build in wanted.items() if (key, epoch) not in self._flights]
            found = zip(unknown, self._store.acquire_all(unknown), strict=True)
            ticket.held = {key: entry for (key, _), entry in found if entry is not None}
            for key, build in wanted.items():
                if key not in ticket.held:
                    flight = self._flights.setdefault((key, epoch), Flight(build, key, epoch))
                    flight.waiting.append(ticket)
                    ticket.missing[key] = flight
            self._send(ticket)
        except BaseException:
            self.drop(ticket)
            raise
        return ticket

    def pump(self) -> None:
        """Take what the pool has finished; waits for nothing but a pass that is computed in this process."""
        self._built += self._pool.poll()
        while self._built:
            for ticket in self._arrive(self._built.popleft()):
                self._send(ticket)

    @property
    def spare(self) -> int:
        """How many workers have nothing to do."""
        return self._pool.spare

    def wait(self, timeout_s: float) -> None:
        """Return once :meth:`pump` may find something, at the latest after ``timeout_s``. Any thread."""
        self._pool.wait(timeout_s)

    def finish(self, ticket: Ticket) -> None:
        """Wait until a ticket is ready.

        Raises:
            Exception: what kept an entry from being built.
        """
        self.pump()
        while not ticket.ready:
            self.wait(_WAIT_S)
            self.pump()
        if ticket.error is not None:
            raise ticket.error

    def acquire(self, builds: Sequence[Build]) -> tuple[dict[SegmentKey, SegmentEntry], set[SegmentKey]]:
        """Pinned entries of all builds, and which of them were made now (cold). Waits for them."""
        ticket = self.start(builds)
        try:
            self.finish(ticket)
        except BaseException:
            self.drop(ticket)
            raise
        return ticket.held, ticket.cold

    def release(self, held: dict[SegmentKey, SegmentEntry]) -> None:
        """Give the pins back that :meth:`acquire` made."""
        for entry in held.values():
            self._store.release(entry)

    def drop(self, ticket: Ticket) -> None:
        """Give a ticket's pins back, and give up what is built for nobody else. Again, it does nothing more."""
        held, ticket.held = ticket.held, {}
        self.release(held)
        while ticket.missing:
            _, flight = ticket.missing.popitem()
            flight.waiting.remove(ticket)
            if flight.waiting:
                continue
            del self._flights[flight.key, flight.epoch]
            if flight.job_id is not None:
                del self._flying[flight.job_id]
                self._pool.cancel([flight.job_id])

    def _send(self, ticket: Ticket) -> None:
        """Submit what this ticket misses, nobody has submitted, and has its prefix."""
        if ticket.error is not None:
            return
        jobs = []
        coming = {f.build.token_ids for f in ticket.missing.values() if f.build.is_prefix}
        for flight in ticket.missing.values():
            build = flight.build
            prefix = find_prefix(build, ticket.held)
            if flight.job_id is None and (prefix is not None or not is_conditioned(build)):
                flight.job_id = next(self._ids)
                self._flying[flight.job_id] = flight
                jobs.append(make_job(flight, flight.job_id, prefix, ticket.id))
            elif flight.job_id is None and build.prefix_ids not in coming:
                ticket.error = LookupError("a conditioned build without its prefix")
        if jobs:
            self._pool.submit(jobs)
        if ticket.error is None:
            self._send_ahead(ticket)

    def _send_ahead(self, ticket: Ticket) -> None:
        """Have workers that would only wait for a prefix compute it too, each in front of a segment."""
        waiting = [flight for flight in ticket.missing.values() if flight.job_id is None]
        for flight in sorted(waiting, key=lambda one: -len(one.build.token_ids)):
            spare = self._pool.spare
            if not spare or len(flight.build.prefix_ids) > len(flight.build.token_ids):
                return
            flight.job_id = next(self._ids)
            self._flying[flight.job_id] = flight
            self._pool.submit([make_job(flight, flight.job_id, None, ticket.id)])
            if self._pool.spare >= spare:
                return  # no worker took it

    def _arrive(self, built: Built) -> list[Ticket]:
        """Publish an entry and pin it for everyone who waits for it; returns them."""
        flight = self._flying.pop(built.job.id, None)
        if flight is None:
            return []
        del self._flights[flight.key, flight.epoch]
        waiting, flight.waiting = flight.waiting, []
        for i, ticket in enumerate(waiting):
            del ticket.missing[flight.key]
            if i == 0:
                ticket.cold.add(flight.key)
                ticket.builds = counted(ticket.builds, built)
            try:
                if built.payload is not None:
                    entry = make_entry(flight, built)
                    ticket.held[flight.key] = self._store.insert(entry, pin=True, since=flight.epoch)
                ticket.error = ticket.error or built.error
            except Exception as error:  # noqa: BLE001  it fails those who wait for this entry, and nobody else
                ticket.error = error
            ticket.build_s = time.perf_counter() - ticket.started_s
        return waiting
