"""Prefixes that jobs are built behind: encoded once, sent once to each worker that needs them. No torch of its own."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict

from hypic_agents.runtime.cache.entry import Payload
from hypic_agents.runtime.cache.key import digest_ids
from hypic_agents.runtime.workers.contract import BuildJob
from hypic_agents.runtime.workers.memory_file import write_file
from hypic_agents.runtime.workers.wire import encode_payload


class PrefixShelf:
    """The latest prefixes as files, by the digest of their tokens."""

    def __init__(self, capacity: int = 4) -> None:
        self._capacity = capacity
        self._files: OrderedDict[str, tuple[Payload, int]] = OrderedDict()

    def name(self, job: BuildJob) -> str | None:
        """The prefix's name, after which :meth:`fd` has it; None for a job without one."""
        if job.prefix is None:
            return None
        name = digest_ids(job.prefix_ids)
        known = self._files.pop(name, None)
        if known is None:
            known = (job.prefix, write_file(encode_payload(job.prefix)))
        self._files[name] = known
        while len(self._files) > self._capacity:
            _, (_, fd) = self._files.popitem(last=False)
            os.close(fd)
        return name

    def fd(self, name: str) -> int:
        return self._files[name][1]

    def names(self) -> list[str]:
        """What workers should keep."""
        return list(self._files)

    def close(self) -> None:
        while self._files:
            _, (_, fd) = self._files.popitem()
            with contextlib.suppress(OSError):
                os.close(fd)
