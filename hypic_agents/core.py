"""What a request is made of, in frozen values that travel between the layers. No torch, no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SegmentKind = Literal["system", "tool", "document", "file", "memory", "trace", "turn"]
GrammarKind = Literal["json_schema", "json_object", "regex", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Who may see a segment: one tenant, optionally narrowed to groups."""

    tenant: str = "default"
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Segment:
    """A reusable part of a prompt, before tokenisation. ``text`` is used verbatim."""

    text: str
    kind: SegmentKind = "document"
    source_id: str = ""
    version: str = ""
    scope: Scope = Scope()


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """Where a segment stands in a prompt, in tokens.

    ``token_ids[i]`` of the standalone segment stands at prompt position ``origin + i`` for every position in
    ``[start, end)``; up to a few tokens at the borders may differ because neighbouring text merges with them.

    Attributes:
        segment: The text and its origin.
        token_ids: The segment's standalone tokens, the ids an entry is built from.
        start: First prompt position (tokens) whose id equals the standalone one.
        end: One past the last such position.
        origin: Prompt position at which ``token_ids[0]`` would stand (``origin <= start``).
    """

    segment: Segment
    token_ids: tuple[int, ...]
    start: int
    end: int
    origin: int


@dataclass(frozen=True, slots=True)
class VolatileText:
    """A sentence that changes with every request and was left out of the segments: it is always live.

    Attributes:
        text: As it stands in the prompt.
        start: First prompt position (tokens) that holds some of it.
        end: One past the last such position.
        reason: What makes it volatile: "states the date or time", "states an id" or "states a count".
    """

    text: str
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """Exact token ids plus the segments found in them, in prompt order and without overlap.

    ``volatile`` names text that was kept out of the segments, in prompt order too. ``scope`` says who may see the text
    outside of them; None if nobody said so.
    """

    token_ids: tuple[int, ...]
    spans: tuple[SegmentSpan, ...] = ()
    text: str = ""
    volatile: tuple[VolatileText, ...] = ()
    scope: Scope | None = None

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer may look like; every token that would break it is masked.

    Attributes:
        kind: ``json_schema``, ``json_object`` (any JSON object), ``regex`` (the whole answer matches), or
            ``tool_calls`` (calls in the text form of the chat template).
        spec: JSON text of the schema; nothing for ``json_object``; the regular expression; or, for ``tool_calls``, JSON
            text of ``{"tools": [OpenAI function specs], "choice": "required" | "auto" | a tool's name, "parallel":
            bool, "answer": the schema of an answer without calls, or nothing}``. Objects are written with their
            properties in the order of the schema. An object that lists its properties has no others, unless the schema
            allows them in words.
    """

    kind: GrammarKind
    spec: str = ""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens. ``temperature=0`` is greedy; ``seed`` makes sampling repeatable.

    With a ``grammar``, only tokens that it allows are chosen, and the answer ends only where the grammar may end.
    Before ``max_tokens`` would cut it, it is brought to an end that the grammar allows, if one is found that fits;
    the finish reason is "length" all the same. ``Completion.metadata["grammar"]`` says whether the answer is
    ``complete``, and how many ``forced_tokens`` were not the model's own; calls in an answer with such tokens are
    invalid ones.
    """

    max_tokens: int = 64
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    grammar: Grammar | None = None
