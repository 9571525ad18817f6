"""Prompts of random tokens with exact lengths: a system text, documents in any order, a question."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hypic_agents.core import Prompt, Segment, SegmentKind, SegmentSpan


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a prompt in tokens. A separator of one token stands behind every document, as a blank line does."""

    num_documents: int = 16
    document_len: int = 512
    system_len: int = 32
    question_len: int = 64

    @property
    def prompt_len(self) -> int:
        return self.system_len + self.num_documents * (self.document_len + 1) + self.question_len


class Prompts:
    """Makes prompts over one set of documents. The same seed gives the same tokens."""

    def __init__(self, shape: Shape, vocab_size: int, seed: int) -> None:
        self._shape = shape
        self._vocab_size = vocab_size
        self._rng = random.Random(seed)
        self._separator = self._tokens(1)
        self._system = self._tokens(shape.system_len)
        self._documents = [self._tokens(shape.document_len) for _ in range(shape.num_documents)]

    def shuffled(self) -> Prompt:
        """All documents in a fresh order behind the system text, and a fresh question."""
        return self._prompt(self._rng.sample(range(len(self._documents)), len(self._documents)))

    def one_each(self) -> list[Prompt]:
        """A prompt for every document alone: what warms the store without showing it any order."""
        return [self._prompt([index]) for index in range(len(self._documents))]

    def _prompt(self, order: Sequence[int]) -> Prompt:
        spans = [_span("system", "system", self._system, 0)]
        token_ids = list(self._system)
        for index in order:
            spans.append(_span("document", f"document-{index}", self._documents[index], len(token_ids)))
            token_ids += [*self._documents[index], *self._separator]
        return Prompt((*token_ids, *self._tokens(self._shape.question_len)), tuple(spans))

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self._rng.choices(range(self._vocab_size), k=count))


def _span(kind: SegmentKind, source_id: str, token_ids: tuple[int, ...], start: int) -> SegmentSpan:
    return SegmentSpan(Segment("", kind, source_id), token_ids, start, start + len(token_ids), start)
