"""One cached segment. No torch: the payload is opaque to the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from hypic_agents.runtime.cache.eviction import Worth
from hypic_agents.runtime.cache.key import SegmentKey


class Payload(Protocol):
    """What the store keeps of a payload: nothing but its size."""

    @property
    def nbytes(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class SegmentEntry:
    """A built segment; compared by identity, so that a pin names one object. Never changed after it was made.

    Attributes:
        key: Its name in the store.
        token_ids: The ids it was built from, compared on every hit.
        payload: The states, keys and values reused; must not change its size.
        source_id: Where the text came from; empty if unknown.
        version: Version of that source.
        depends_on: ``(source_id, version)`` of other text that shaped the payload, such as the prefix of a conditioned
            build; invalidating one of them invalidates this entry too.
        build_s: Seconds the build took: what an eviction would cost.
        nbytes: Size of the payload in bytes, read once, when the entry is made.

    Raises:
        ValueError: the ids and the key differ in length, or the payload's size is negative.
    """

    key: SegmentKey
    token_ids: tuple[int, ...] = field(repr=False)
    payload: Payload = field(repr=False)
    source_id: str = ""
    version: str = ""
    depends_on: tuple[tuple[str, str], ...] = ()
    build_s: float = 0.0
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        if len(self.token_ids) != self.key.num_tokens:
            raise ValueError(f"{len(self.token_ids)} token ids under a key of {self.key.num_tokens} tokens")
        object.__setattr__(self, "nbytes", self.payload.nbytes)
        if self.nbytes < 0:
            raise ValueError(f"a payload of {self.nbytes} bytes")

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """``(source_id, version)`` of all text that shaped the payload, its own first."""
        return ((self.source_id, self.version), *self.depends_on)


@dataclass(slots=True)
class Slot:
    """How a store in memory holds an entry: its pins, whether it was never kept, and how often it was wanted."""

    entry: SegmentEntry
    pins: int = 0
    lent: bool = False
    uses: int = 1

    @property
    def worth(self) -> Worth:
        entry = self.entry
        return Worth.of(self.uses, entry.build_s, entry.key.num_tokens, entry.nbytes)
