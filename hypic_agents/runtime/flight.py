"""What requests wait for while it is built: tickets, flights, and how builds become jobs and jobs become entries."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from hashlib import blake2b

from hypic_agents.completion import ColdBuilds
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.plan import Build
from hypic_agents.runtime.state import SegmentPayload
from hypic_agents.runtime.workers.contract import BuildJob, Built


@dataclass(slots=True, eq=False)
class Ticket:
    """The entries that one request waits for, or holds.

    Attributes:
        held: Pinned entries.
        missing: What is still being built.
        cold: Keys of entries that were built for this request first.
        builds: Where those were computed.
        error: Why one of them cannot be had.
    """

    id: int
    held: dict[SegmentKey, SegmentEntry] = field(default_factory=dict)
    missing: dict[SegmentKey, Flight] = field(default_factory=dict)
    cold: set[SegmentKey] = field(default_factory=set)
    builds: ColdBuilds = field(default_factory=ColdBuilds)
    error: Exception | None = None
    started_s: float = field(default_factory=time.perf_counter)
    build_s: float = 0.0

    @property
    def ready(self) -> bool:
        return not self.missing or self.error is not None


@dataclass(slots=True, eq=False)
class Flight:
    """One entry on its way, and who waits for it. ``job_id`` is None until its prefix is there."""

    build: Build
    key: SegmentKey
    epoch: int
    waiting: list[Ticket] = field(default_factory=list)
    job_id: int | None = None


def is_conditioned(build: Build) -> bool:
    """Whether it is built behind a prefix that has an entry of its own."""
    return bool(build.prefix_ids) and not build.is_prefix


def find_prefix(build: Build, held: dict[SegmentKey, SegmentEntry]) -> SegmentPayload | None:
    """The checkpoint that a build stands behind, among held entries; None where it needs none, or it is not there."""
    if not is_conditioned(build):
        return None
    for entry in held.values():
        payload = entry.payload
        assert isinstance(payload, SegmentPayload)
        if payload.is_checkpoint and entry.token_ids == build.prefix_ids:
            return payload  # of whatever scope: equal tokens give equal states, and it is held by this ticket
    return None


def make_job(flight: Flight, job_id: int, prefix: SegmentPayload | None, owner: int) -> BuildJob:
    """A build as a pool takes it; one that is conditioned on a prefix that is not there computes that as well."""
    build = flight.build
    is_live = prefix is None and is_conditioned(build)
    prefix_ids = build.prefix_ids if is_conditioned(build) else ()
    hold = blake2b(f"{flight.epoch} {flight.key!r}".encode(), digest_size=16).hexdigest()
    return BuildJob(
        job_id,
        build.token_ids,
        build.head,
        build.map_from,
        build.is_prefix,
        prefix_ids,
        prefix,
        owner,
        hold,
        prefix_live=is_live,
    )


def make_entry(flight: Flight, built: Built) -> SegmentEntry:
    """What a pool made, as the store takes it."""
    build = flight.build
    assert built.payload is not None
    return SegmentEntry(
        key=flight.key,
        token_ids=build.token_ids,
        payload=built.payload,
        source_id=build.source_id,
        version=build.version,
        depends_on=build.depends_on,
        build_s=built.build_s,
    )


def counted(before: ColdBuilds, built: Built) -> ColdBuilds:
    """One build more."""
    is_local = built.place == "local"
    problems = tuple(dict.fromkeys((*before.problems, *built.problems)))
    return ColdBuilds(
        before.local + is_local, before.workers + (not is_local), before.retries + built.retries, problems
    )
