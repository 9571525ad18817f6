"""Text of a growing answer: never cut inside a character, stop strings found across token borders. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from typing import Final

# Tokens in front of the window whose text was read already: what a decoder does at the beginning of a text (dropping a
# blank, joining bytes) happens there. A few more are tried where the window would begin inside a character.
_CONTEXT_LENS: Final = range(8, 12)
_BATCH_LEN: Final = 32  # tokens read before the window moves on
_UNFINISHED: Final = "\ufffd"


class Detokenizer:
    """Turns tokens into text as they come; all pieces, joined, are the text of all tokens.

    Every token decodes the window of the last ones only, so the time grows with the number of tokens. The window begins
    anew between two characters, where its text without the earlier tokens is the end of its text with them.

    Args:
        decode: Token ids to text.
        stop: The answer ends before the one of these that is complete first; of several that end at one place, before
            the longest. So it does not depend on how the text was cut into tokens.
        byte_ids: Tokens that are decoded together where they stand in a row: one that follows may change the text of
            all. Such a row is shown when it is over.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        stop: Sequence[str] = (),
        byte_ids: AbstractSet[int] = frozenset(),
    ) -> None:
        self._decode = decode
        self._stop = tuple(stop)
        self._byte_ids = byte_ids
        self._window: list[int] = []
        self._num_read = 0  # characters of the window's text that were shown, or are held
        self._move_at = _BATCH_LEN
        self._shown: list[str] = []
        self._held = ""  # settled, and perhaps the beginning of a stop string
        self._open = ""  # what the next token may still change
        self.stopped = False

    @property
    def text(self) -> str:
        """The text so far, up to a stop string."""
        return "".join((*self._shown, self._held, self._open))

    def push(self, token_id: int) -> str:
        """Add a token; the text that may be shown now (possibly empty)."""
        self._window.append(token_id)
        text = self._decode(self._window)
        settled = self._settled_len(text)
        self._held += text[self._num_read : settled]
        self._open = text[settled:]
        self._num_read = settled
        known = self._held + self._open
        found = [(at + len(s), at) for s in self._stop if (at := known.find(s)) >= 0]
        if found:
            self.stopped = True
            self._held, self._open = known[: min(found)[1]], ""
            return self._show(len(self._held))
        if not self._open and len(self._window) >= self._move_at:
            self._move(text)
        return self._show(len(self._held) - self._stop_begun())

    def finish(self) -> str:
        """The rest, once no token follows."""
        self._held, self._open = self._held + self._open, ""
        return self._show(len(self._held))

    def _settled_len(self, text: str) -> int:
        """Length of the window's ``text`` that no token to come will change."""
        row = len(list(takewhile(self._byte_ids.__contains__, reversed(self._window))))
        if row:
            return max(self._num_read, len(self._decode(self._window[:-row])))
        # An unfinished character decodes to U+FFFD at the end and changes with the next token.
        return len(text) - text.endswith(_UNFINISHED)

    def _move(self, text: str) -> None:
        self._move_at = len(self._window) + _BATCH_LEN
        for length in _CONTEXT_LENS:
            context = self._window[-length:]
            known = self._decode(context)
            if known and text.endswith(known):
                self._window, self._num_read, self._move_at = context, len(known), length + _BATCH_LEN
                return

    def _show(self, until: int) -> str:
        piece, self._held = self._held[:until], self._held[until:]
        self._shown.append(piece)
        return piece

    def _stop_begun(self) -> int:
        """Length of the longest end of what is held that begins a stop string."""
        longest = max((len(s) for s in self._stop), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(s.startswith(self._held[-size:]) for s in self._stop):
                return size
        return 0
