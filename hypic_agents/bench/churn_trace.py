"""Requests for documents that differ in popularity, come once, and change: what a store meets in service."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate

from hypic_agents.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Sizes:
    """What segments take and cost, by their length. The defaults are those of the packaged model.

    Attributes:
        fixed_bytes, token_bytes: A segment takes the first, and the second for each of its tokens.
        token_s, pair_s: Building it takes seconds in its tokens and in their square.
    """

    fixed_bytes: int = 103_000
    token_bytes: int = 1_024
    token_s: float = 2e-4
    pair_s: float = 2e-8

    def nbytes(self, tokens: int) -> int:
        return self.fixed_bytes + self.token_bytes * tokens

    def build_s(self, tokens: int) -> float:
        return self.token_s * tokens + self.pair_s * tokens**2


@dataclass(frozen=True, slots=True)
class Access:
    """A request for one version of one document. ``updated`` lists documents that got a new version just before."""

    document: int
    version: int
    tokens: int
    updated: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """Accesses in order, and the lengths (tokens) of the documents that may come again."""

    accesses: tuple[Access, ...]
    lengths: tuple[int, ...]


def make_trace(
    *, requests: int, documents: int, one_off_share: float, update_share: float, skew: float, seed: int
) -> Trace:
    """A trace of popularity ``1 / rank ** skew``.

    Args:
        requests: Accesses.
        documents: Documents that may come again; their lengths are log-uniform between 128 and 4,096 tokens.
        one_off_share: Share of accesses to a document that never comes again.
        update_share: Chance that, before an access, a document that may come again changes, popular ones more often.
        skew: Exponent of the popularity; 0 is uniform.
        seed: Of everything.

    Raises:
        InvalidInput: no request, no document, or a share outside ``[0, 1]``.
    """
    if requests < 1 or documents < 1:
        raise InvalidInput(f"{requests} requests over {documents} documents: use 1 or more of each")
    if not (0 <= one_off_share <= 1 and 0 <= update_share <= 1):
        raise InvalidInput(f"one_off_share={one_off_share}, update_share={update_share}: use shares from 0 to 1")
    rng = random.Random(seed)
    lengths = tuple(_length(rng) for _ in range(documents))
    weights = list(accumulate((rank + 1) ** -skew for rank in range(documents)))
    versions = [0] * documents
    accesses = []
    for i in range(requests):
        updated: tuple[int, ...] = ()
        if rng.random() < update_share:
            updated = tuple(rng.choices(range(documents), cum_weights=weights))
            versions[updated[0]] += 1
        if rng.random() < one_off_share:
            accesses.append(Access(documents + i, 0, _length(rng), updated))
        else:
            chosen = rng.choices(range(documents), cum_weights=weights)[0]
            accesses.append(Access(chosen, versions[chosen], lengths[chosen], updated))
    return Trace(tuple(accesses), lengths)


def _length(rng: random.Random) -> int:
    return round(128 * math.pow(32, rng.random()))


def offline_hits(accesses: Sequence[Access], sizes: Sequence[int], budget: int) -> Iterator[bool]:
    """Which accesses hit if the future is known: greedy Belady by bytes.

    What is used farthest in the future leaves first until the newcomer fits, and the newcomer itself is not kept if it
    is used farther than all of them. With equal sizes this is the optimum; with different ones a close bound of it.

    Args:
        accesses: All of them.
        sizes: Bytes of each access's segment.
        budget: Bytes that may be kept.
    """
    never = len(accesses)
    following = [never] * len(accesses)
    seen: dict[tuple[int, int], int] = {}
    for at in reversed(range(len(accesses))):
        name = (accesses[at].document, accesses[at].version)
        following[at] = seen.get(name, never)
        seen[name] = at
    kept: dict[tuple[int, int], tuple[int, int]] = {}  # name: next use, bytes
    farthest: list[tuple[int, tuple[int, int]]] = []
    held = 0
    for at, access in enumerate(accesses):
        name = (access.document, access.version)
        hit = name in kept
        yield hit
        if hit:
            held -= kept.pop(name)[1]
        if following[at] == never:
            continue
        kept[name] = (following[at], sizes[at])
        heappush(farthest, (-following[at], name))
        held += sizes[at]
        while held > budget:
            distance, leaving = heappop(farthest)
            if leaving in kept and kept[leaving][0] == -distance:
                held -= kept.pop(leaving)[1]
