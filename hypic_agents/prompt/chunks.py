"""Content-defined chunks of long texts whose parts nobody declared.

Borders are chosen by what stands around them (Muthitacharoen et al., SOSP 2001, with lines in place of bytes): a change
in one place moves the borders near it only, and the chunks before and after stay the same texts. That is what makes
them reusable when a document is edited or moves within a prompt.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

MIN_CHUNK_LEN: Final = 600  # characters
MAX_CHUNK_LEN: Final = 4000
# One line in so many ends a chunk, besides the smallest length. Never all: borders that are chosen by their distance
# from the last one alone would not fall into step again behind a change.
_BORDER_ODDS: Final = 8
_STRONG_ODDS: Final = 3
# A blank line, a heading or a rule is where an editor would cut as well.
_STRONG: Final = ("\n\n", "\n#", "\n---", "\n===", "\n<")


def chunks(text: str) -> Iterator[tuple[int, int]]:
    """Regions ``[start, end)`` of the chunks, in order; they cover the text up to a last piece that is too short."""
    start = 0
    for border in _borders(text):
        while border - start > MAX_CHUNK_LEN:
            cut = _space_before(text, start + MAX_CHUNK_LEN, start + MIN_CHUNK_LEN)
            yield start, cut
            start = cut
        if border - start >= MIN_CHUNK_LEN:
            yield start, border
            start = border
    while len(text) - start > MAX_CHUNK_LEN:
        cut = _space_before(text, start + MAX_CHUNK_LEN, start + MIN_CHUNK_LEN)
        yield start, cut
        start = cut
    if len(text) - start >= MIN_CHUNK_LEN:
        yield start, len(text)


def _borders(text: str) -> Iterator[int]:
    """Positions behind line ends whose neighbourhood says so."""
    at = text.find("\n")
    line = 0
    while at >= 0:
        odds = _STRONG_ODDS if text.startswith(_STRONG, at) else _BORDER_ODDS
        if at > line and zlib.crc32(text[line:at].encode(errors="surrogatepass")) % odds == 0:
            yield at + 1
        line = at + 1
        at = text.find("\n", line)


def _space_before(text: str, limit: int, least: int) -> int:
    """The last place after a space in ``(least, limit]``, else ``limit``."""
    space = text.rfind(" ", least, limit)
    return limit if space < 0 else space + 1
