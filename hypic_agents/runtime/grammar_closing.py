"""A short way to end an answer from where its grammar stands: a bounded search on a copy of the matcher."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

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
_MOST_STEPS = 1000
_MOST_MENDED = 16
_DETOUR = 2  # brackets that are entered rather than leaving the likeliest way


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
        """``way``, found a few tokens ago, as far as it still serves, perhaps behind one byte that ends something."""
        heads = [[], *([byte] for byte in self._closing)]
        for start in range(min(len(way), _MOST_MENDED) + 1):
            for head in heads:
                mended = [*head, *way[start:]]
                if len(mended) <= limit and self.ends(matcher, mended):
                    return mended
        return None

    def find(self, matcher: LLMatcher, limit: int, hints: Sequence[Sequence[int]] = ()) -> list[int] | None:
        """Tokens, at most ``limit``, behind which the answer may end; None where the search finds none.

        Best first: out of brackets before into them, and the likeliest way before a detour, else on from where it
        stands. So a recursive schema is left by the branch that does not recur, and a number ends rather than grows
        where an object must follow. ``hints`` are tried inside strings that may not end yet.
        """
        probe, at = matcher.deep_copy(), list[int]()
        order = count()
        waiting = [(0, 0, next(order), at)]  # brackets open and detours, steps taken (negative), order of coming, path
        for _ in range(_MOST_STEPS):
            if not waiting:
                return None
            cost, taken, _, path = heappop(waiting)
            shared = next(
                (i for i, (a, b) in enumerate(zip(at, path, strict=False)) if a != b), min(len(at), len(path))
            )
            probe.rollback(len(at) - shared)
            probe.consume_tokens(path[shared:])
            if probe.is_accepting():
                return path
            at = path
            for rank, (way, deeper) in enumerate(self._ways(probe, path, hints)):
                if len(path) + len(way) <= limit:
                    detour = _DETOUR if rank else 0
                    heappush(waiting, (cost + deeper + detour, taken - 1, next(order), path + way))
        return None

    def _spell(self, text: str) -> list[int]:
        """``text`` in tokens of one byte; empty where a byte has none."""
        return [self._by_byte[b] for b in text.encode()] if self._by_byte.keys() >= set(text.encode()) else []

    def _quoted_after(self, probe: LLMatcher, run: list[int]) -> bool:
        return bool(probe.validate_tokens([*run, self._quote]) == len(run) + 1)

    def _nesting(self, way: Sequence[int]) -> int:
        text = self._tokenizer.decode_bytes(list(way))
        return sum(map(text.count, (b"{", b"["))) - sum(map(text.count, (b"}", b"]")))

    def _ways(
        self, probe: LLMatcher, path: Sequence[int], hints: Sequence[Sequence[int]]
    ) -> Iterator[tuple[list[int], int]]:
        """What may follow, the likeliest to end first, and how many brackets deeper it leads."""
        forced = probe.compute_ff_tokens()
        if forced:
            yield forced, self._nesting(forced)
            return
        mask = np.zeros(self._num_words, np.int32)
        probe.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        allowed = self._ids[(mask[self._ids >> 5] >> (self._ids & 31)) & 1 == 1].tolist()
        if len(allowed) > _MANY:
            # Inside a string, where brackets mean nothing.
            if probe.validate_tokens(self._end_tag) == len(self._end_tag) > 0:
                yield self._end_tag, 0
            elif self._quote in allowed:
                yield [self._quote], 0
            else:
                runs = [*map(list, hints), *([token] for token in allowed)]
                last = [run for run in runs if self._quoted_after(probe, run)]
                often = ([token] for token in sorted(allowed, key=path.count)[:_WIDE])
                yield from ((run, 0) for run in (last[:_WIDE] or often))
            return
        # A byte used before gives way to others, so that a pattern such as [a-z]*q comes to its q.
        groups = ((self._groups.get(token, 1), path.count(token), token) for token in allowed)
        ordered = sorted(groups, key=lambda way: way[:2] if way[0] == 1 else (way[0], 0))
        for _, _, token in ordered[:_NARROW]:
            yield [token], self._nesting([token])
