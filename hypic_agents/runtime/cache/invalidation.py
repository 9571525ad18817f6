"""Which entries one call of ``invalidate`` covers. No torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.key import SegmentKey

VersionOrder = Callable[[str], Any]
"""Gives a sort key of a non-empty version; must be pure and must not call the store."""


class Sourced(Protocol):
    """What is asked of an entry, or of its description."""

    @property
    def key(self) -> SegmentKey: ...

    @property
    def sources(self) -> tuple[tuple[str, str], ...]: ...


@dataclass(frozen=True, slots=True)
class Invalidation:
    """The conditions of one call, all of which an entry must meet; see ``SegmentStore.invalidate``.

    Raises:
        InvalidInput: no condition at all, or ``version_before`` without ``source_id``.
    """

    source_id: str | None = None
    version_before: str | None = None
    tenant: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if self.version_before is not None and self.source_id is None:
            raise InvalidInput("version_before compares versions of one source: name it with source_id")
        if self.source_id is None and self.tenant is None and self.group is None:
            raise InvalidInput("invalidate needs a condition: source_id, tenant or group")

    def covers(self, entry: Sourced, version_order: VersionOrder) -> bool:
        """Whether ``entry`` meets every condition."""
        scope = entry.key.scope
        if self.tenant is not None and scope.tenant != self.tenant:
            return False
        if self.group is not None and self.group not in scope.groups:
            return False
        return self.source_id is None or any(
            source_id == self.source_id and self._covers_version(version, version_order)
            for source_id, version in entry.sources
        )

    def _covers_version(self, version: str, version_order: VersionOrder) -> bool:
        if self.version_before is None:
            return True
        if not version or not self.version_before:
            return version < self.version_before
        return bool(version_order(version) < version_order(self.version_before))


class InvalidationLog:
    """The last ``length`` invalidations, so that a build which one of them overtook is recognised."""

    def __init__(self, length: int = 256) -> None:
        self.epoch = 0
        self._recent: deque[Invalidation] = deque(maxlen=length)

    def append(self, invalidation: Invalidation | None) -> None:
        """Add one; None covers everything."""
        if invalidation is None:
            self._recent.clear()  # a log that does not reach back covers all
        else:
            self._recent.append(invalidation)
        self.epoch += 1

    def overtook(self, entry: Sourced, since: int, version_order: VersionOrder) -> bool:
        """Whether an invalidation after epoch ``since`` covers ``entry``; yes if the log no longer reaches back."""
        missed = self.epoch - since
        if missed > len(self._recent):
            return True
        later = list(self._recent)[len(self._recent) - missed :] if missed > 0 else []
        return any(invalidation.covers(entry, version_order) for invalidation in later)
