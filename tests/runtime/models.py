"""Random models of every supported architecture, and prompts cut into segments without a tokenizer."""

from __future__ import annotations

import copy
import functools
import random
from typing import Any

from hypic_agents.core import Prompt, Scope, Segment, SegmentSpan
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.models.random_init import random_model
from hypic_agents.runtime.models.registry import TINY, wrap

FAMILIES = ("qwen3_5", "qwen3_next", "qwen3_5_moe")
VOCAB = 1024


@functools.cache
def reference(family: str, layout: str = "") -> Any:
    """The untouched transformers model. ``layout`` is a word such as "lflf": linear and full layers in order."""
    changes: dict[str, Any] = {}
    if layout:
        names = {"l": "linear_attention", "f": "full_attention"}
        changes = {"layer_types": [names[c] for c in layout], "num_hidden_layers": len(layout)}
    return random_model(f"random:{family}:2m", **changes).eval().requires_grad_(False)


@functools.cache
def hybrid(family: str, layout: str = "") -> HybridModel:
    """The same weights with our token mixing."""
    return wrap(copy.deepcopy(reference(family, layout)))


class StandIn:
    """A model in place of another: what it does not define is the other's."""

    def __init__(self, model: HybridModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class OnToken(StandIn):
    """A model that does something else where one token is among those that it computes."""

    def __init__(self, model: HybridModel, token: int) -> None:
        super().__init__(model)
        self._token = token


class Failing(OnToken):
    """A model that breaks on one token."""

    def forward(self, rows: Any) -> Any:
        result = self._model.forward(rows)
        if (result.batch.token_ids == self._token).any():
            raise RuntimeError("broken on purpose")
        return result


@functools.cache
def _tokenizer() -> ChatTokenizer:
    return ChatTokenizer.from_pretrained(str(TINY))


def engine(family: str = "qwen3_5", layout: str = "", **config: Any) -> Engine:
    """A fresh engine (empty store) on a shared random model."""
    return Engine(hybrid(family, layout), _tokenizer(), f"{family}-{layout}", EngineConfig(**config))


def segment_ids(rng: random.Random, length: int) -> tuple[int, ...]:
    return tuple(rng.randrange(3, VOCAB) for _ in range(length))


def make_prompt(
    parts: list[tuple[int, ...]],
    *,
    system: tuple[int, ...] = (),
    glue: tuple[int, ...] = (5, 6),
    question: tuple[int, ...] = (7, 8, 9, 10, 11),
    scope: Scope | None = None,
) -> Prompt:
    """A prompt of a system segment, parts with glue between them, and a question."""
    ids: list[int] = [4]
    spans: list[SegmentSpan] = []

    def add(kind: str, tokens: tuple[int, ...]) -> None:
        start = len(ids)
        ids.extend(tokens)
        segment = Segment(" ".join(map(str, tokens)), kind, scope=scope or Scope())  # type: ignore[arg-type]
        spans.append(SegmentSpan(segment, tokens, start, len(ids), start))

    if system:
        add("system", system)
    for part in parts:
        ids.extend(glue)
        add("document", part)
    ids.extend(question)
    return Prompt(tuple(ids), tuple(spans))
