"""A short way to end an answer from where its grammar stands: a bounded search on a copy of the matcher."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import chain, count, islice

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from hypic_agents.runtime.grammar_tags import END_PARAMETER

# Bytes are tried in this order: what ends an object, an array or a string; what is short; what opens something new.
_FIRST = b'}]",'
_ORDER = _FIRST + b"0123456789ntf@:/.-_+ " + string.ascii_letters.encode()
_LATE = b"[{\\"
_NARROW = 6  # ways tried where few bytes are possible, as between the names of an enum
_WIDE = 2  # and where nearly all are, as inside a free string
_MANY = 40
_MOST_STEPS = 1000  # without a bracket closed
_MOST_STEPS_IN_ALL = 4000
_NEAR = 3
_MOST_MENDED = 256
_DETOUR = 2  # brackets that are entered rather than leaving the likeliest way


@dataclass(frozen=True, order=True, slots=True)
class _Path:
    """A way so far; the least is followed first.

    Attributes:
        cost: Brackets open and detours.
        steps: Taken, negative: the longer way first.
        order: Of coming.
        open: Per bracket opened on the way and open still: where, and the cost before it.
        closed: Where the last bracket was opened that the last step closed; None if it closed none.
    """

    cost: int
    steps: int
    order: int
    tokens: list[int] = field(compare=False)
    open: tuple[tuple[int, int], ...] = field(compare=False)
    closed: int | None = field(default=None, compare=False)


class Closer:
    """Finds ways to end an answer, written in forced tokens and tokens of one byte.

    Args:
        tokenizer: Of the matchers that are searched.

    Attributes:
        eos: A token that ends an answer.
    """

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._tokenizer = tokenizer
        self.eos: int = tokenizer.eos_token
        self._num_words = (tokenizer.vocab_size + 31) // 32
        found: dict[int, int] = {}
        for byte in range(256):
            ids = tokenizer.tokenize_bytes(bytes([byte]))
            if len(ids) == 1 and tokenizer.decode_bytes(ids) == bytes([byte]):
                found[byte] = ids[0]
        self._by_byte = found
        self._end_tag = self._spell(END_PARAMETER)
        ranked = dict.fromkeys(_ORDER) | dict.fromkeys(range(256))
        self._ids: NDArray[np.int64] = np.array([found[byte] for byte in ranked if byte in found], np.int64)
        self._closing = [found[byte] for byte in b'"}]' if byte in found]
        self._quote = found.get(ord('"'), -1)
        self._groups = {found[byte]: 0 for byte in _FIRST if byte in found}
        self._groups |= {found[byte]: 2 for byte in _LATE if byte in found}

    def ends(self, matcher: LLMatcher, path: Sequence[int]) -> bool:
        """Whether ``path`` may follow, and the answer end behind it."""
        return bool(matcher.validate_tokens([*path, self.eos]) == len(path) + 1)

    def mend(self, matcher: LLMatcher, way: Sequence[int], limit: int) -> list[int] | None:
        """``way``, found some tokens ago, as far as it still serves, perhaps behind a byte that ends something.

        Nearly all of it where that is possible, else its shortest end. The matcher is changed for a while.
        """
        heads = [[], *([byte] for byte in self._closing)]
        near = ((start, head) for start in range(min(_NEAR, len(way))) for head in heads)
        for start, head in chain(near, islice(self._tails(matcher, way, heads), _MOST_MENDED)):
            mended = [*head, *way[start:]]
            if len(mended) <= limit and self.ends(matcher, mended):
                return mended
        return None

    def _tails(
        self, matcher: LLMatcher, way: Sequence[int], heads: Sequence[list[int]]
    ) -> Iterator[tuple[int, list[int]]]:
        """Where ``way`` may go on behind one of ``heads`` as far as its next token tells, the shortest rest first."""
        steps, tails = np.array(way, np.int64), list[tuple[int, list[int]]]()
        for head in heads:
            if matcher.try_consume_tokens(head) == len(head):
                fitting = np.flatnonzero(_is_set(self._mask(matcher), steps)).tolist()
                tails += ((start, head) for start in (*fitting, len(way)) if start >= _NEAR)
                matcher.rollback(len(head))
        yield from sorted(tails, key=lambda tail: tail[0], reverse=True)

    def find(self, matcher: LLMatcher, limit: int, hints: Sequence[Sequence[int]] = ()) -> list[int] | None:
        """Tokens, at most ``limit``, behind which the answer may end; None where the search finds none.

        Best first: out of brackets before into them, and the likeliest way before a detour, else on from where it
        stands. So a recursive schema is left by the branch that does not recur, and a number ends rather than grows
        where an object must follow. Behind a bracket that closes, no other way through its inside is tried, so the
        parts of a long answer are searched one after another. Where that leads nowhere, as where brackets are mere
        characters, every way stays open. ``hints`` are tried inside strings that may not end yet.
        """
        found, settled = self._search(matcher, limit, hints, settle=True)
        if found is None and settled:
            found, _ = self._search(matcher, limit, hints, settle=False)
        return found

    def _search(
        self, matcher: LLMatcher, limit: int, hints: Sequence[Sequence[int]], *, settle: bool
    ) -> tuple[list[int] | None, bool]:
        """The way found, and whether any was left out behind a bracket that closed."""
        probe, at = matcher.deep_copy(), list[int]()
        order = count()
        waiting = [_Path(0, 0, next(order), at, ())]
        left, settled = _MOST_STEPS, False
        for _ in range(_MOST_STEPS_IN_ALL):
            if not waiting or not left:
                break
            left -= 1
            one = heappop(waiting)
            path = one.tokens
            shared = _num_shared(at, path)
            probe.rollback(len(at) - shared)
            probe.consume_tokens(path[shared:])
            if probe.is_accepting():
                return path, settled
            at = path
            if settle and one.closed is not None:
                waiting = [other for other in waiting if other.tokens[: one.closed] != path[: one.closed]]
                heapify(waiting)
                left, settled = _MOST_STEPS, True
            for rank, way in enumerate(self._ways(probe, path, hints)):
                if len(path) + len(way) <= limit:
                    heappush(waiting, self._extended(one, way, _DETOUR if rank else 0, next(order)))
        return None, settled

    def _extended(self, one: _Path, way: list[int], detour: int, order: int) -> _Path:
        """``one`` and a way behind it. A bracket that closes costs nothing any more, nor do detours inside it."""
        cost, open_, closed = one.cost + detour, list(one.open), None
        for index, token in enumerate(way, len(one.tokens)):
            for byte in self._tokenizer.decode_bytes([token]):
                if byte in b"{[":
                    open_.append((index, cost))
                    cost += 1
                elif byte in b"}]":
                    closed, cost = open_.pop() if open_ else (0, cost - 1)
        return _Path(cost, one.steps - 1, order, one.tokens + way, tuple(open_), closed)

    def _spell(self, text: str) -> list[int]:
        """``text`` in tokens of one byte; empty where a byte has none."""
        return [self._by_byte[b] for b in text.encode()] if self._by_byte.keys() >= set(text.encode()) else []

    def _mask(self, matcher: LLMatcher) -> NDArray[np.int32]:
        mask = np.zeros(self._num_words, np.int32)
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        return mask

    def _quoted_after(self, probe: LLMatcher, run: list[int]) -> bool:
        return bool(probe.validate_tokens([*run, self._quote]) == len(run) + 1)

    def _ways(self, probe: LLMatcher, path: Sequence[int], hints: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """What may follow, the likeliest to end first."""
        forced = probe.compute_ff_tokens()
        if forced:
            yield forced
            return
        allowed = self._ids[_is_set(self._mask(probe), self._ids)].tolist()
        if len(allowed) > _MANY:
            # Inside a string, where brackets mean nothing.
            if probe.validate_tokens(self._end_tag) == len(self._end_tag) > 0:
                yield self._end_tag
            elif self._quote in allowed:
                yield [self._quote]
            else:
                runs = [*map(list, hints), *([token] for token in allowed)]
                last = [run for run in runs if self._quoted_after(probe, run)]
                often = ([token] for token in sorted(allowed, key=path.count)[:_WIDE])
                yield from last[:_WIDE] or often
            return
        # A byte used before gives way to others, so that a pattern such as [a-z]*q comes to its q.
        groups = ((self._groups.get(token, 1), path.count(token), token) for token in allowed)
        ordered = sorted(groups, key=lambda way: way[:2] if way[0] == 1 else (way[0], 0))
        for _, _, token in ordered[:_NARROW]:
            yield [token]


def _is_set(mask: NDArray[np.int32], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    bits: NDArray[np.bool_] = (mask[ids >> 5] >> (ids & 31)) & 1 == 1
    return bits


def _num_shared(a: list[int], b: list[int]) -> int:
    """Length of the common beginning."""
    if b[: len(a)] == a:
        return len(a)
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
