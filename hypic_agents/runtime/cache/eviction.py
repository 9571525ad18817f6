"""Which entry leaves first: least recently used, or the least saved work a byte. Pure rules; no torch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Generic, Literal, Protocol, TypeVar

from hypic_agents.errors import InvalidInput

EvictionName = Literal["lru", "gdsf"]
K = TypeVar("K", bound=Hashable)

# Where a build was not timed, its tokens stand for it: the order of magnitude of a small model on one CPU thread.
_SECONDS_A_TOKEN = 1e-4


@dataclass(frozen=True, slots=True)
class Worth:
    """What a rule weighs: how often an entry was used, what building it again costs, and what it takes."""

    uses: int
    build_s: float
    nbytes: int

    @classmethod
    def of(cls, uses: int, build_s: float, num_tokens: int, nbytes: int) -> Worth:
        """The worth of an entry; a build that was not timed (0 s) is estimated from its tokens."""
        return cls(uses, build_s or num_tokens * _SECONDS_A_TOKEN, nbytes)


class Eviction(Protocol):
    """Gives every touch a priority; the lowest leaves first. The clock is the store's own and only grows."""

    @property
    def name(self) -> EvictionName: ...

    def touched(self, clock: float, worth: Worth) -> tuple[float, float]:
        """The clock after a touch, and the entry's new priority."""
        ...

    def evicted(self, clock: float, priority: float) -> float:
        """The clock after an entry of that priority left."""
        ...


@dataclass(frozen=True, slots=True)
class LRU:
    """The least recently used leaves first: the clock counts touches."""

    name: EvictionName = "lru"

    def touched(self, clock: float, worth: Worth) -> tuple[float, float]:  # noqa: ARG002  recency weighs nothing
        return clock + 1, clock + 1

    def evicted(self, clock: float, priority: float) -> float:  # noqa: ARG002
        return clock


@dataclass(frozen=True, slots=True)
class GDSF:
    """Greedy dual size frequency (Cherkasova, 1998): priority ``clock + uses * build_s / nbytes``.

    The clock rises to the priority of what leaves, so that past uses count less and less.
    """

    name: EvictionName = "gdsf"

    def touched(self, clock: float, worth: Worth) -> tuple[float, float]:
        return clock, clock + worth.uses * worth.build_s / max(1, worth.nbytes)

    def evicted(self, clock: float, priority: float) -> float:
        return max(clock, priority)


def eviction_rule(name: str) -> Eviction:
    """The rule of that name.

    Raises:
        InvalidInput: there is none.
    """
    rules: dict[str, Eviction] = {"lru": LRU(), "gdsf": GDSF()}
    if name not in rules:
        raise InvalidInput(f"eviction={name!r}: use {' or '.join(rules)}")
    return rules[name]


class EvictionQueue(Generic[K]):
    """Keys in the order in which they would leave; equal priorities leave oldest touch first. O(log n) a verb."""

    def __init__(self, rule: Eviction) -> None:
        self.rule = rule
        self._clock = 0.0
        self._ticks = 0
        self._at: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []

    def __len__(self) -> int:
        return len(self._at)

    def __iter__(self) -> Iterator[K]:
        return iter(self._at)

    def touch(self, key: K, worth: Worth) -> None:
        """Put ``key`` in its place, new or not."""
        self._clock, priority = self.rule.touched(self._clock, worth)
        self._ticks += 1
        self._at[key] = (priority, self._ticks)
        heappush(self._heap, (priority, self._ticks, key))
        if len(self._heap) > 64 + 2 * len(self._at):
            self._heap = [(*place, each) for each, place in self._at.items()]
            heapify(self._heap)

    def remove(self, key: K) -> None:
        """Take ``key`` out, for another reason than making room."""
        del self._at[key]

    def pop(self) -> K:
        """Take out the key that leaves first.

        Raises:
            KeyError: there is none.
        """
        while self._heap:
            priority, tick, key = heappop(self._heap)
            if self._at.get(key) == (priority, tick):
                del self._at[key]
                self._clock = self.rule.evicted(self._clock, priority)
                return key
        raise KeyError("nothing to evict")
