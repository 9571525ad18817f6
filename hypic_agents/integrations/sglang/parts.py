"""A prompt as the HYPIC build takes it: text, cut into parts that the server caches one by one.

The server tokenises each part by itself, caches every part but the last under its tokens, and reads the separator and
control tokens wherever they stand. So

* white space behind a segment goes with the segment, whose part is then the same wherever it stands;
* a system text or tool spec at the front takes what the chat template writes before it along, unless text stands there
  that changes with every request;
* what else stands between segments is a part of its own, and everything behind the last segment is the last part;
* content that the server would read as a separator or a control token is refused, or broken up by a blank if the user
  says so (``escape=True``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypic_agents.core import Prompt, Segment
from hypic_agents.integrations.sglang.errors import UnsafeContent
from hypic_agents.integrations.sglang.known import digest
from hypic_agents.prompt.template import RenderedText
from hypic_agents.prompt.tokenizer import ChatTokenizer, Tokens

_BREAKS = (" ", "_", ".")
_LEADING = ("system", "tool")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a prompt's text.

    Attributes:
        num_tokens: As the server counts.
        segment: What it holds; None for text between segments.
    """

    text: str
    num_tokens: int
    segment: Segment | None = None

    @property
    def key(self) -> bytes:
        return digest(self.text)


@dataclass(frozen=True, slots=True)
class CutPrompt:
    """Parts in order; the last one is never cached.

    Attributes:
        num_changed: Tokens that are others than those of the whole prompt tokenised at once.
    """

    parts: tuple[Part, ...]
    num_changed: int = 0

    def text(self, separator: str) -> str:
        """What the server is sent.

        Raises:
            UnsafeContent: Parts that meet make up a separator.
        """
        texts = [part.text for part in self.parts]
        joined = separator.join(texts)
        if joined.split(separator) != texts:
            raise UnsafeContent(
                f"the prompt holds {separator!r}, which separates segments on this server; remove it, or let it be "
                "broken up with escape=True"
            )
        return joined


def cut(prompt: Prompt, tokenizer: ChatTokenizer, *, whole: bool = False, min_len: int = 24) -> CutPrompt:
    """Parts of a prompt.

    Args:
        prompt: As built; its segments stand verbatim in its text.
        tokenizer: The server's own.
        whole: One part: nothing is cached, nothing reused.
        min_len: Segments with fewer tokens are no parts of their own.

    Raises:
        UnsafeContent: Content spells a control token: sent as text, it would become one.
    """
    at_once = as_text(tokenizer, prompt.text)
    if at_once.ids != prompt.token_ids:
        raise UnsafeContent(
            "the prompt holds text that spells a control token of this model, and a server that takes text would read "
            "it as one; remove it, or let it be broken up with escape=True"
        )
    if whole:
        return CutPrompt((Part(prompt.text, len(prompt)),))
    expected = set(zip(at_once.ids, at_once.starts, at_once.ends, strict=True))
    parts: list[Part] = []
    at = num_changed = 0
    for text, segment in _pieces(prompt, min_len):
        own = as_text(tokenizer, text)
        placed = zip(own.ids, own.starts, own.ends, strict=True)
        num_changed += sum((token, start + at, end + at) not in expected for token, start, end in placed)
        parts.append(Part(text, len(own.ids), segment))
        at += len(text)
    return CutPrompt(tuple(parts), num_changed)


def as_text(tokenizer: ChatTokenizer, text: str) -> Tokens:
    """Tokens of text as a server tokenises it: what spells a control token becomes one."""
    return tokenizer.encode(RenderedText(text, text, {}))


def broken_up(value: Any, marks: Sequence[str]) -> Any:
    """Nested lists and mappings with every mark in every text broken up."""
    if isinstance(value, str):
        for mark in marks:
            value = _broken(value, mark)
        return value
    if isinstance(value, Mapping):
        return {key: item if key == "role" else broken_up(item, marks) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [broken_up(item, marks) for item in value]
    return value


def _broken(text: str, mark: str) -> str:
    # The character put in is not in the mark, so nothing across it can be the mark again.
    breaker = next(c for c in _BREAKS if c not in mark)
    while mark in text:
        text = text.replace(mark, mark[0] + breaker + mark[1:])
    return text


def _pieces(prompt: Prompt, min_len: int) -> Iterator[tuple[str, Segment | None]]:
    at = 0
    text = prompt.text
    for span in prompt.spans:
        start = text.find(span.segment.text, at)
        if start < 0 or span.end - span.start < min_len:
            continue
        end = start + len(span.segment.text)
        end += len(text[end:]) - len(text[end:].lstrip())
        if end == len(text):
            break
        if at == 0 and span.segment.kind in _LEADING and not any(v.start < span.start for v in prompt.volatile):
            start = 0
        if start > at:
            yield text[at:start], None
        yield text[start:end], span.segment
        at = end
    yield text[at:], None
