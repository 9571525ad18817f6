"""Prefixes that jobs are built behind, in Ray's object store: put there once for all actors."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from hypic_agents.runtime.cache.key import digest_ids
from hypic_agents.runtime.workers.contract import BuildJob
from hypic_agents.runtime.workers.ray_actor import Actor
from hypic_agents.runtime.workers.wire import encode_payload, to_bytes


class RayPrefixes:
    """References to the latest prefixes, by the digest of their tokens.

    Args:
        ray: The module ``ray``, or what stands for it.
        capacity: How many are kept.
    """

    def __init__(self, ray: Any, capacity: int = 4) -> None:
        self._ray = ray
        self._capacity = capacity
        self._refs: OrderedDict[str, Any] = OrderedDict()

    def provide(self, actor: Actor, job: BuildJob) -> str | None:
        """See to it that the actor holds a job's prefix; its name there, None for a job without one."""
        if job.prefix is None:
            return None
        name = digest_ids(job.prefix_ids)
        if name not in self._refs:
            self._refs[name] = self._ray.put(bytes(to_bytes(encode_payload(job.prefix))))
        self._refs.move_to_end(name)
        while len(self._refs) > self._capacity:
            self._refs.popitem(last=False)
        if name not in actor.prefixes:
            actor.send_prefix(name, self._refs[name], list(self._refs))
        return name

    def clear(self) -> None:
        self._refs.clear()
