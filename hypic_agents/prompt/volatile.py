"""Text that changes with every request: sentences of a system text that state the time, an id or a count.

A segment that held one would be another segment for every request. Only system texts are looked through: in documents,
tool results and memory entries a date is content, and a changed one is another version.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from hypic_agents.core import VolatileText
from hypic_agents.prompt.align import SHORT_LEN, Placed
from hypic_agents.prompt.tokenizer import Tokens

# Anybody's text is looked through with these, so each takes a time linear in it: what repeats is bounded, possessive,
# or begins where it cannot begin again within itself.
_SENTENCE = re.compile(r"[^\n]+?(?:[.!?](?=\s)|(?=\n)|$)")
_CUE = re.compile(r"\b(?:current|today|now|date|time|timestamp|session|request)\b", re.IGNORECASE)
_CLOCK = re.compile(
    r"\b\d{1,2}:\d{2}(?::\d{2})?\b"
    r"|\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b"
    r"|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{4}\b"
    r"|\b\d{1,2}\.? (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* \d{4}\b"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* \d{1,2},? \d{4}\b"
    r"|\b\d{10}(?:\d{3})?\b",
    re.IGNORECASE,
)
_INSTANT = re.compile(r"\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}", re.IGNORECASE)
_ID = re.compile(
    r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"
    r"|\b(?:session|request|trace|conversation|run|thread|chat|correlation)[ _-]?id\b(?:\s+is)?[\s:=#]*"
    r"(?=[\w-]{0,63}\d)[\w-]{6}",
    re.IGNORECASE,
)
_COUNTED = r"(?:token|step|turn|call|request|message|iteration|attempt)"
# "Step 3" and "at most 3 calls" are steady instructions; these are not.
_COUNT = re.compile(
    rf"\b{_COUNTED}\s*(?:number|count(?:er)?|#)\s*+(?:is\s*+)?[:=]?\s*#?\d"
    rf"|\b\d[\d,]{{0,31}}\s+{_COUNTED}s?\s+(?:are\s+)?(?:left|remain(?:ing)?|used|so far)\b"
    rf"|\b{_COUNTED}s?\s+(?:left|remaining|used|so far)\s*[:=]\s*\d",
    re.IGNORECASE,
)


def steady_pieces(text: str) -> list[str]:
    """What is left of a text without its volatile sentences; pieces under 32 characters are dropped where it is cut."""
    regions = [(start, end) for start, end, _ in _volatile(text)]
    if not regions:
        return [text]
    edges = [0, *(edge for region in regions for edge in region), len(text)]
    pieces = (text[start:end].strip() for start, end in zip(edges[::2], edges[1::2], strict=True))
    return [piece for piece in pieces if len(piece) >= SHORT_LEN]


def find_volatile(texts: Iterable[str], prompt: str, placed: Sequence[Placed], tokens: Tokens) -> list[VolatileText]:
    """Where the volatile sentences of ``texts`` stand in a prompt, in tokens, but for those inside a segment.

    Args:
        texts: Of the system message.
        prompt: The rendered chat.
        placed: Its segments, in order: what the caller declared as one stays one, whatever it says.
        tokens: Of the rendered chat.
    """
    found: list[VolatileText] = []
    at = 0
    for text in texts:
        for first, last, reason in _volatile(text):
            sentence = text[first:last].strip()
            start = prompt.find(sentence, at)
            if start < 0:
                continue
            at = end = start + len(sentence)
            if not any(one.start < end and start < one.end for one in placed):
                region = bisect_right(tokens.ends, start), bisect_left(tokens.starts, end)
                found.append(VolatileText(sentence, *region, reason))
    return found


def _volatile(text: str) -> Iterator[tuple[int, int, str]]:
    """``(start, end, why)`` of the volatile sentences."""
    for match in _SENTENCE.finditer(text):
        if reason := _reason(match.group()):
            yield *match.span(), reason


def _reason(sentence: str) -> str:
    if _INSTANT.search(sentence) or (_CUE.search(sentence) and _CLOCK.search(sentence)):
        return "states the date or time"
    if _ID.search(sentence):
        return "states an id"
    return "states a count" if _COUNT.search(sentence) else ""
