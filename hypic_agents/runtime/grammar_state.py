"""Where one answer stands in its grammar: allowed tokens, and the way to the end. No torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from hypic_agents.errors import InvalidGrammar
from hypic_agents.runtime.grammar_closing import Closer

_LONGEST_CYCLE = 16
# The way to the end is looked for again when this part of the room to spare is used; within the margin, at every token,
# since a single token may begin an object or a call that takes many.
_ROOM_PARTS = 8
_MARGIN = 64


@dataclass(frozen=True, slots=True)
class CompiledGrammar:
    """A grammar at its start; shared, never advanced.

    Attributes:
        matcher: Copied for each answer.
        shortest: Tokens of a short answer, where one is known.
        hints: Token runs that may complete a string that must have a certain form.
    """

    matcher: LLMatcher
    shortest: Sequence[int] | None
    hints: Sequence[Sequence[int]]


class GrammarState:
    """Where one answer stands in its grammar.

    Two things keep a weak model from never ending, without a token that the grammar forbids. A short way to the end is
    known, and taken as soon as a token would make it too long for the room that ``max_tokens`` leaves. And an answer
    that repeats one cycle for ``loop_len`` tokens takes steps of that way until it is out of the cycle.

    Args:
        compiled: The grammar.
        closer: Finds the ways to the end.
        max_tokens: Most tokens of the answer.
        loop_len: See above; 0 turns it off.

    Attributes:
        closing: Being ended because of ``max_tokens``.
        num_forced: Tokens taken in place of the model's own.
    """

    def __init__(self, compiled: CompiledGrammar, closer: Closer, max_tokens: int, loop_len: int) -> None:
        self._matcher = compiled.matcher.deep_copy()
        self._hints = compiled.hints
        self._closer = closer
        self._way: list[int] = []
        self._settled: list[int] | None = None  # forced tokens; None where they are not known yet
        self._margin = max(_MARGIN, len(compiled.shortest or ()))
        self._plan(compiled.shortest, max_tokens)
        self._cycles = _Cycles(loop_len)
        self._lead_at = max_tokens
        self.closing = False
        self.num_forced = 0

    @property
    def forced(self) -> int | None:
        """The token that comes next whatever the model says; None where it has a choice.

        Where the text is settled, this is the token that the tokenizer itself would write for it.
        """
        if self.closing:
            return self._way[0] if self._way else self._closer.eos
        settled = self._run()
        return settled[0] if settled else None

    @property
    def num_settled(self) -> int:
        """How many tokens come next whatever the model says, as far as that can be seen from here."""
        return len(self._way) if self.closing else len(self._run())

    def allows(self, token_id: int) -> bool:
        """Whether a token may come next: its bit of :meth:`fill`."""
        forced = self.forced
        return token_id == forced if forced is not None else bool(self._matcher.validate_tokens([token_id]) == 1)

    def fill(self, row: NDArray[np.int32]) -> None:
        """Write the allowed tokens into ``row [words]``: bit ``i % 32`` of word ``i // 32`` is token ``i``."""
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)

    def accept(self, token_id: int, left: int) -> int:
        """Take the next token; returns the one that was taken: perhaps another, or an end token, which is not taken.

        Args:
            token_id: An allowed one, no end token.
            left: Tokens the answer may still get, this one included.

        Raises:
            InvalidGrammar: The grammar became too complex to follow.
        """
        if self.closing:
            return self._force()
        if self._cycles.found and left <= self._lead_at and not self.complete:
            self._plan(self._find(left), left)
            if not self._fits:
                self._lead_at = left - _MARGIN  # a search that finds nothing is dear
            elif self._way[0] != token_id:
                token_id = self._way[0]
                self.num_forced += 1
        self._take(token_id)
        if left - 1 <= self._look_at:
            did_fit = self._fits
            self._plan(self._find(left - 1), left - 1)
            if did_fit and not self._fits:
                self._matcher.rollback(1)
                way = self._find(left)
                if way is not None:
                    self._way, self.closing = way, True
                    return self._force()
                self._take(token_id)
        self._cycles.push(token_id)
        return token_id

    def end(self) -> None:
        """Take an end token.

        Raises:
            InvalidGrammar: The answer may not end here, which happens only where it could not be followed.
        """
        if not self.complete:
            raise InvalidGrammar(f"the grammar could not be followed: {reason(self._matcher.get_error())}")

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        return bool(self._matcher.is_accepting())

    @property
    def ended(self) -> bool:
        """Whether nothing may follow."""
        return not self._way if self.closing else bool(self._matcher.is_stopped())

    def _run(self) -> list[int]:
        if self._settled is None:
            self._settled = self._matcher.compute_ff_tokens()
        return self._settled

    def _force(self) -> int:
        self.num_forced += 1
        if not self._way:
            return self._closer.eos
        token_id = self._way[0]
        self._take(token_id)
        return token_id

    def _take(self, token_id: int) -> None:
        self._settled = None
        if not self._matcher.consume_token(token_id):
            raise InvalidGrammar(f"the grammar could not be followed: {reason(self._matcher.get_error())}")
        if self._way and self._way[0] == token_id:
            del self._way[0]

    def _find(self, left: int) -> list[int] | None:
        if self.complete:
            return []
        mended = self._closer.mend(self._matcher, self._way, left)
        return mended if mended is not None else self._closer.find(self._matcher, left, self._hints)

    def _plan(self, way: Sequence[int] | None, left: int) -> None:
        """Remember the way to the end from here, and when to look again."""
        self._fits = way is not None and len(way) <= left
        if way is not None and self._fits:
            self._way = list(way)
            self._look_at = left - max(1, (left - len(way) - self._margin) // _ROOM_PARTS)
        else:
            self._look_at = left // 2


class _Cycles:
    """Notices a tail of ``length`` tokens that repeats a cycle of at most 16."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._recent: deque[int] = deque(maxlen=_LONGEST_CYCLE)
        self._runs = [0] * _LONGEST_CYCLE

    def push(self, token_id: int) -> None:
        for back, earlier in enumerate(reversed(self._recent)):
            self._runs[back] = self._runs[back] + 1 if earlier == token_id else 0
        self._recent.append(token_id)

    @property
    def found(self) -> bool:
        return self._length > 0 and max(self._runs) >= self._length


def reason(message: str) -> str:
    """The line that matters of a message that may hold a parser's state or a drawing."""
    lines = [line for line in message.splitlines() if line.strip()]
    marked = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (marked or lines or ["no token may come next"])[0]
