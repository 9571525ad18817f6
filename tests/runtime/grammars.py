"""Schemas to hold answers to, and a stand-in for a model: any allowed token, drawn at random."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hypic_agents.core import Grammar
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.grammar import Grammars
from hypic_agents.runtime.grammar_state import GrammarState
from hypic_agents.runtime.models.registry import TINY
from tests.runtime.models import VOCAB

SUM = {
    "type": "object",
    "properties": {"kind": {"const": "sum"}, "left": {"$ref": "#/$defs/term"}, "right": {"$ref": "#/$defs/term"}},
    "required": ["kind", "left", "right"],
}
VALUE = {
    "type": "object",
    "properties": {"kind": {"const": "value"}, "value": {"type": "integer"}},
    "required": ["kind", "value"],
}
RECURSIVE = {"$ref": "#/$defs/term", "$defs": {"term": {"anyOf": [SUM, VALUE]}}}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["name", "age"],
}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


TOOLS = [
    tool("get_weather", city={"type": "string"}, days={"type": "integer"}),
    tool("get"),
    tool("say", text={"enum": ["a", "b"]}),
]


def schema_grammar(schema: Any) -> Grammar:
    return Grammar("json_schema", json.dumps(schema))


def calls_grammar(choice: str, *, parallel: bool = False) -> Grammar:
    return Grammar("tool_calls", json.dumps({"tools": TOOLS, "choice": choice, "parallel": parallel}))


def _objects(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(properties: dict[str, Any], flags: list[bool], free: bool) -> dict[str, Any]:
        required = [name for name, flag in zip(properties, flags, strict=False) if flag]
        schema = {"type": "object", "properties": properties, "required": required}
        return schema | {"additionalProperties": True} if free else schema

    names = st.text('abcdefé "\\/', min_size=1, max_size=4)
    properties = st.dictionaries(names, children, max_size=3)
    return st.builds(build, properties, st.lists(st.booleans(), max_size=3), st.booleans())


def _arrays(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.integers(0, 2)
    return st.builds(
        lambda items, low, more: {"type": "array", "items": items, "minItems": low, "maxItems": low + more},
        children,
        few,
        few,
    )


_strings = st.builds(
    lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
    st.integers(0, 3),
    st.integers(0, 20),
)
_integers = st.builds(
    lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
    st.integers(-99, 99),
    st.integers(0, 999),
)
_values = st.none() | st.booleans() | st.integers(-5, 5) | st.text('xyz"\n', max_size=3)
_leaves = (
    st.sampled_from([{"type": t} for t in ("string", "integer", "number", "boolean", "null")])
    | st.sampled_from([{"type": "string", "pattern": p} for p in ("^[a-c]{2,4}$", "^x|y$", "[0-9]-[0-9]")])
    | st.sampled_from([{"type": "string", "format": f} for f in ("date", "ipv4", "email", "password")])
    | st.just({"type": ["integer", "null"]})
    | st.lists(_values, min_size=1, max_size=3).map(lambda values: {"enum": values})
    | _strings
    | _integers
    | st.just({"$ref": "#/$defs/list"})
)
# Bounded, valid, satisfiable schemas; some refer to a list that holds itself.
schemas = st.recursive(
    _leaves,
    lambda children: (
        _objects(children) | _arrays(children) | st.lists(children, min_size=1, max_size=2).map(lambda c: {"anyOf": c})
    ),
    max_leaves=6,
).map(
    lambda schema: (
        schema
        | {"$defs": {"list": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/list"}}]}}}
    )
)


@functools.cache
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer.from_pretrained(str(TINY))


@functools.cache
def grammars(loop_len: int = 0) -> Grammars:
    return Grammars(tokenizer(), VOCAB, loop_len)


def shortest_way(grammar: Grammar) -> Sequence[int]:
    grammars().start(grammar, 1)
    shortest = grammars()._compiled[grammar].shortest
    assert shortest is not None
    return shortest


def allowed(state: GrammarState) -> list[int]:
    row = np.zeros(VOCAB // 32, np.int32)
    state.fill(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    return [int(token) for token in np.flatnonzero(bits)]


def babble(
    grammar: Grammar, max_tokens: int, rng: random.Random, made: Grammars | None = None
) -> tuple[str, GrammarState]:
    """The answer of a model that knows nothing: each token is drawn from those allowed, the end included."""
    state = (made or grammars()).start(grammar, max_tokens)
    ids: list[int] = []
    while len(ids) < max_tokens and not state.ended:
        token = rng.choice(allowed(state))
        if token in tokenizer().eos_token_ids and not state.closing:
            break
        taken = state.accept(token, max_tokens - len(ids))
        if taken in tokenizer().eos_token_ids:
            break
        ids.append(taken)
    return tokenizer().decode(ids), state
