"""Text of a growing answer: never cut inside a character, stop strings found across token borders. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Detokenizer:
    """Turns tokens into text as they come.

    Args:
        decode: Token ids to text.
        stop: The answer ends before the first occurrence of any of these.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stop = tuple(stop)
        self._ids: list[int] = []
        self._sent = 0
        self.text = ""
        self.stopped = False

    def push(self, token_id: int) -> str:
        """Add a token; the text that may be shown now (possibly empty)."""
        self._ids.append(token_id)
        text = self._decode(self._ids)
        found = [at for at in (text.find(s) for s in self._stop) if at >= 0]
        if found:
            self.stopped = True
            self.text = text[: min(found)]
            return self._emit(len(self.text))
        self.text = text
        # An unfinished character decodes to U+FFFD at the end and changes with the next token.
        safe = len(text) - 1 if text.endswith("�") else len(text)
        return self._emit(min(safe, len(text) - self._held(text)))

    def finish(self) -> str:
        """The rest, once no token follows."""
        return self._emit(len(self.text))

    def _emit(self, until: int) -> str:
        piece = self.text[self._sent : until]
        self._sent = max(self._sent, until)
        return piece

    def _held(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        longest = max((len(s) for s in self._stop), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(s.startswith(text[-size:]) for s in self._stop):
                return size
        return 0
