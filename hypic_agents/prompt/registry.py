"""Texts seen before, and which of them stand in a message.

Frameworks join documents into one string before a model sees them. Observers register each document's text when it
passes by; :meth:`TextRegistry.find` says which ones a string holds. A text counts only where it stands verbatim (as
it is, stripped, or escaped as JSON or ``repr`` write it), so a wrong entry costs reuse and never changes a prompt.

Each text is known by an anchor of a few characters. One Aho-Corasick pass over a message finds all anchors at once,
whatever their number; only there is the whole text compared.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from threading import Lock
from typing import Any, Final

import ahocorasick

from hypic_agents.core import Scope, Segment
from hypic_agents.errors import InvalidInput

MIN_TEXT_LEN: Final = 32  # characters; shorter texts stand in messages by chance
_ANCHOR_LEN: Final = 24
# A header that many documents share makes a poor anchor; the next offset is tried then.
_ANCHOR_OFFSETS: Final = (0, 24, 64, 160, 400, 1000)
_MOST_OWNERS: Final = 4
# New texts have an automaton of their own until they are worth building the large one again.
_MOST_FRESH: Final = 128

_Form = tuple[int, str, str]  # anchor's offset in the spelling, the spelling, the text it belongs to


class TextRegistry:
    """Known texts by scope, the latest ``max_texts`` of each. Safe to share between threads."""

    def __init__(self, *, max_texts: int = 20_000, max_scopes: int = 256) -> None:
        if max_texts < 1 or max_scopes < 1:
            raise InvalidInput(f"max_texts={max_texts}, max_scopes={max_scopes}: use 1 or more")
        self._max_texts, self._max_scopes = max_texts, max_scopes
        self._shelves: OrderedDict[Scope, _Shelf] = OrderedDict()
        self._lock = Lock()

    def register(self, segment: Segment) -> bool:
        """Remember a text; False if it is too short, or has no UTF-8 form. The same text again is only touched."""
        text = segment.text
        if len(text.strip()) < MIN_TEXT_LEN or not _is_encodable(text):
            return False
        with self._lock:
            shelf = self._shelves.setdefault(segment.scope, _Shelf(self._max_texts))
            self._shelves.move_to_end(segment.scope)
            if len(self._shelves) > self._max_scopes:
                self._shelves.popitem(last=False)
            shelf.put(segment)
        return True

    def find(self, text: str, scope: Scope) -> list[Segment]:
        """Segments of ``scope`` whose text stands in ``text``, in the order of their first appearance.

        Of two versions of one source only the one registered last is given: the other stays live.
        """
        with self._lock:
            shelf = self._shelves.get(scope)
            return [] if shelf is None else shelf.find(text)

    def forget(self, scope: Scope, source_id: str | None = None) -> int:
        """Drop the texts of a source, or all of the scope; returns how many."""
        with self._lock:
            shelf = self._shelves.get(scope)
            return 0 if shelf is None else shelf.forget(source_id)

    def __len__(self) -> int:
        with self._lock:
            return sum(len(shelf) for shelf in self._shelves.values())


class _Shelf:
    """The texts of one scope, least recently registered first."""

    def __init__(self, max_texts: int) -> None:
        self._max_texts = max_texts
        self._segments: OrderedDict[str, Segment] = OrderedDict()
        self._stamps: dict[str, int] = {}
        self._clock = 0
        self._settled, self._fresh = _Index(), _Index()

    def __len__(self) -> int:
        return len(self._segments)

    def put(self, segment: Segment) -> None:
        known = segment.text in self._segments
        self._segments[segment.text] = segment
        self._segments.move_to_end(segment.text)
        self._clock += 1
        self._stamps[segment.text] = self._clock
        if len(self._segments) > self._max_texts:
            old, _ = self._segments.popitem(last=False)
            del self._stamps[old]
        if not known:
            self._fresh.add(segment.text)
            if len(self._fresh.texts) > _MOST_FRESH:
                self._settle()

    def _settle(self) -> None:
        if len(self._settled.texts) > 2 * len(self._segments):
            self._settled = _Index()
        for text in self._segments.keys() - self._settled.texts:
            self._settled.add(text)
        self._fresh = _Index()

    def forget(self, source_id: str | None) -> int:
        gone = [t for t, s in self._segments.items() if source_id is None or s.source_id == source_id]
        for text in gone:
            del self._segments[text], self._stamps[text]
        return len(gone)

    def find(self, text: str) -> list[Segment]:
        at: dict[str, int] = {}
        for key, start in chain(self._settled.find(text), self._fresh.find(text)):
            at[key] = min(start, at.get(key, start))
        found = [key for key in sorted(at, key=at.__getitem__) if key in self._segments]
        segments = [self._segments[key] for key in found]
        latest = {s.source_id: s.version for s in sorted(segments, key=lambda s: self._stamps[s.text])}
        return [s for s in segments if not s.source_id or s.version == latest[s.source_id]]


class _Index:
    """An automaton over the anchors of texts; it is built when it is needed next."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self._owners: dict[str, list[_Form]] = {}
        self._automaton: Any = ahocorasick.Automaton()
        self._is_built = False

    def add(self, text: str) -> None:
        self.texts.add(text)
        for spelling in spellings(text):
            offset, anchor = self._anchor(spelling)
            self._owners.setdefault(anchor, []).append((offset, spelling, text))
            self._automaton.add_word(anchor, anchor)
        self._is_built = False  # also where every anchor was known: adding one turns the automaton into a trie again

    def _anchor(self, spelling: str) -> tuple[int, str]:
        options = [(at, spelling[at : at + _ANCHOR_LEN]) for at in _ANCHOR_OFFSETS if at + _ANCHOR_LEN <= len(spelling)]
        return next((o for o in options if len(self._owners.get(o[1], ())) < _MOST_OWNERS), options[-1])

    def find(self, text: str) -> Iterator[tuple[str, int]]:
        """``(known text, where it starts)``."""
        if not self._owners:
            return
        if not self._is_built:
            self._automaton.make_automaton()
            self._is_built = True
        for last, anchor in self._automaton.iter(text):
            first = last - len(anchor) + 1
            for offset, spelling, key in self._owners[anchor]:
                if first >= offset and text.startswith(spelling, first - offset):
                    yield key, first - offset


def spellings(text: str) -> list[str]:
    """How a text may stand in a message: stripped, and escaped where that differs."""
    bare = text.strip()
    forms = (bare, json.dumps(bare, ensure_ascii=False)[1:-1], json.dumps(bare)[1:-1], repr(bare)[1:-1])
    return list(dict.fromkeys(forms))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
