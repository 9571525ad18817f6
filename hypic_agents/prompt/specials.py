"""Control tokens, and how text that only looks like one is told apart from the template's own.

A control token is every special token and every other added token that is more than white space (GPT-NeoX keeps runs of
spaces as added tokens: they are text). A template writes control tokens as text, so a document that holds
``<|im_end|>`` would end the message. ``Shields`` puts placeholders for such text into the messages before they are
rendered; every control token in the rendered text is then the template's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import Any

Region = tuple[int, int]

# Names the templates look up or compare: hiding one, because a strange vocabulary holds it, would break the template.
_STRUCTURE = frozenset(
    "content type function name description parameters properties required items enum arguments id tool_calls "
    "tool_call_id reasoning_content".split()
)
_TYPES = ("function", "string", "number", "integer", "boolean", "array", "object", "null")


class ControlTokens:
    """The texts of a tokenizer's control tokens, and the places of a text that could be read as one.

    ``also_find`` finds the places that only the tokenizer sees, where it matches added tokens in normalised text.
    """

    def __init__(self, texts: Iterable[str], also_find: Callable[[str], Iterable[Region]] | None = None) -> None:
        self.texts = sorted({text for text in texts if text.strip()})
        self._also_find = also_find
        self._pattern = re.compile(_trie_pattern(self.texts) if self.texts else r"(?!)")
        self._joined = "\0".join(self.texts)
        self._longest = max(map(len, self.texts), default=0)
        self._heads = frozenset(t[:i] for t in self.texts for i in range(1, len(t)) if t[:i].strip())
        self._tails = frozenset(t[i:] for t in self.texts for i in range(1, len(t)) if t[i:].strip())

    def find(self, text: str) -> list[Region]:
        """Character regions, in order and disjoint, without which no neighbouring text can make a control token.

        These are whole control tokens, and the edges of the text (blanks aside) that begin, end or continue one.
        """
        if not self.texts:
            return []
        core = text.strip()
        first = text.find(core)
        if core and len(core) < self._longest and core in self._joined:
            return [(first, first + len(core))]
        regions = [match.span() for match in self._pattern.finditer(text)]
        if self._also_find is not None:
            regions += self._also_find(text)
        sizes = range(min(self._longest - 1, len(core)), 0, -1)
        regions += [(first, first + n) for n in sizes if core[:n] in self._tails][:1]
        last = first + len(core)
        regions += [(last - n, last) for n in sizes if core[last - first - n :] in self._heads][:1]
        return list(_united(regions))


class Shields:
    """Placeholders for the risky texts of one prompt: private-use characters that stand nowhere in its content."""

    def __init__(self, controls: ControlTokens, avoid: str = "") -> None:
        self._controls = controls
        self._avoid = avoid
        self._free: Iterator[str] = iter(())
        self._placeholders: dict[str, str] = {}
        self.originals: dict[str, str] = {}

    def hide(self, value: Any) -> Any:
        """A copy of nested lists and mappings with placeholders in every text but the names that templates look up.

        May be called once: the placeholders are chosen against all texts of ``value``.
        """
        strings = list(_strings(value))
        if any(self._controls.find(text) for text in strings):
            seen = "".join(chain(strings, self._controls.texts, (self._avoid,)))
            private_use = map(chr, chain(range(0xE000, 0xF900), range(0xF0000, 0xFFFFE)))
            self._free = (c for c in private_use if c not in seen and _escaped(c) not in seen)
            return self._hidden(value)
        return value

    def mend_escapes(self, text: str) -> str:
        """Rendered text in which JSON-escaped placeholders are placeholders of the JSON-escaped originals."""
        for original, placeholder in list(self._placeholders.items()):
            if _escaped(placeholder) in text:
                text = text.replace(_escaped(placeholder), self._placeholder(_escaped(original)))
        return text

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._hidden_text(value)
        if isinstance(value, Mapping):
            return {
                key if key in _STRUCTURE else self._hidden(key): item
                if key == "type" and item in _TYPES
                else self._hidden(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._hidden(item) for item in value]
        return value

    def _hidden_text(self, text: str) -> str:
        pieces, at = [], 0
        for start, end in self._controls.find(text):
            pieces += [text[at:start], self._placeholder(text[start:end])]
            at = end
        return "".join([*pieces, text[at:]])

    def _placeholder(self, original: str) -> str:
        if original not in self._placeholders:
            placeholder = next(self._free)
            self._placeholders[original] = placeholder
            self.originals[placeholder] = original
        return self._placeholders[original]


def restore(text: str, originals: Mapping[str, str]) -> str:
    """``text`` with the originals in place of the placeholders."""
    for placeholder, original in originals.items():
        text = text.replace(placeholder, original)
    return text


def _escaped(text: str) -> str:
    return json.dumps(text)[1:-1]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _united(regions: Iterable[Region]) -> Iterator[Region]:
    current: Region | None = None
    for start, end in sorted(regions):
        if current is not None and start < current[1]:
            current = (current[0], max(current[1], end))
        else:
            if current is not None:
                yield current
            current = (start, end)
    if current is not None:
        yield current


def _trie_pattern(words: list[str]) -> str:
    """A pattern that matches the longest of the sorted ``words`` in time that does not grow with their number."""
    first, last = words[0], words[-1]
    prefix = first[
        : next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    ]
    rests = [word[len(prefix) :] for word in words]
    branches = [_trie_pattern(list(group)) for _, group in groupby(filter(None, rests), key=lambda rest: rest[0])]
    if not branches:
        return re.escape(prefix)
    return f"{re.escape(prefix)}(?:{'|'.join(branches)}){'' if all(rests) else '?'}"
