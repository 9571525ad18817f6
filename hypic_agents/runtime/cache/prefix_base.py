"""The words of the tree of prefix checkpoints: what names a beginning, and what is kept of it. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from hypic_agents.core import Scope

Symbol = int | tuple[int, str]
"""A token that was computed behind all before it: its id. One that was composed: its id, and how it was."""

Domain = frozenset[Scope]
"""Every scope of a prompt. Two prompts share a beginning only if all of them agree."""

Source = tuple[int, str, str]
"""Position (tokens) at which a text of a source begins, the source's id, and its version."""


class Pages(Protocol):
    """Keys and values of consecutive tokens, never changed after they were made."""

    @property
    def nbytes(self) -> int: ...

    def split(self, at: int) -> tuple[Self, Self]:
        """The first ``at`` tokens and the others, each in memory of its own; together of the same size."""
        ...


class Snapshot(Protocol):
    """The states behind one token, never changed after they were made."""

    @property
    def nbytes(self) -> int: ...


P = TypeVar("P", bound=Pages)
S = TypeVar("S", bound=Snapshot)


@dataclass(frozen=True, slots=True)
class Match(Generic[P, S]):
    """The longest checkpoint of a beginning: ``length`` tokens, the states behind them, their pages in order.

    It keeps what it names alive, whatever the tree drops meanwhile.
    """

    length: int
    state: S
    pages: tuple[P, ...]


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """Counts since the tree was made, and what it holds now.

    Attributes:
        hits, misses: Calls of ``find`` that found a checkpoint, or none.
        inserts: Checkpoints that were kept.
        evictions: Kept checkpoints that left to make room.
        invalidated: Kept checkpoints that became unfindable before.
        rejected: Checkpoints that were not kept: too large, overtaken by an invalidation, or their making failed.
        held_bytes: Bytes of states, keys and values, never above ``budget_bytes``.
        checkpoints: Kept checkpoints.
        tokens: Tokens whose keys and values are held; what beginnings share counts once.
    """

    hits: int = 0
    misses: int = 0
    inserts: int = 0
    evictions: int = 0
    invalidated: int = 0
    rejected: int = 0
    held_bytes: int = 0
    budget_bytes: int = 0
    checkpoints: int = 0
    tokens: int = 0
