"""Grammars token by token, with a model that draws any allowed token: the answer parses, however little room it has."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hypic_agents.core import Grammar
from hypic_agents.errors import InvalidGrammar, UnsupportedModel
from hypic_agents.prompt.tool_calls import parse_tool_calls
from hypic_agents.runtime.grammar import Grammars
from hypic_agents.runtime.grammar_closing import Closer
from tests.runtime.grammars import (
    PERSON,
    RECURSIVE,
    TOOLS,
    allowed,
    babble,
    calls_grammar,
    grammars,
    schema_grammar,
    schemas,
    shortest_way,
    tokenizer,
)
from tests.runtime.models import VOCAB


def require_valid(text: str, schema: Any) -> None:
    Draft202012Validator(schema).validate(json.loads(text))


@settings(max_examples=40, deadline=None)
@given(schemas, st.integers(0, 200), st.randoms(use_true_random=False))
def test_answers_parse_and_validate_whatever_is_drawn(schema: Any, more: int, rng: random.Random) -> None:
    grammar = schema_grammar(schema)
    grammars().start(grammar, 1)
    shortest = grammars()._compiled[grammar].shortest
    assert shortest is not None
    text, state = babble(grammar, max(1, len(shortest)) + more, rng)
    require_valid(text, schema)
    assert state.complete


@settings(max_examples=15, deadline=None)
@given(schemas, st.integers(0, 12), st.randoms(use_true_random=False))
def test_a_token_is_allowed_where_its_bit_is_set(schema: Any, steps: int, rng: random.Random) -> None:
    state = grammars().start(schema_grammar(schema), 10**6)
    for step in range(steps):
        choices = [token for token in allowed(state) if token not in tokenizer().eos_token_ids]
        if not choices:
            break
        state.accept(rng.choice(choices), 10**6 - step)
    assume(not state.ended)
    assert [token for token in range(VOCAB) if state.allows(token)] == allowed(state)


@pytest.mark.parametrize("room", [20, 30, 60, 120, 400])
def test_a_recursive_answer_is_closed_within_its_room(room: int) -> None:
    for seed in range(5):
        text, state = babble(schema_grammar(RECURSIVE), room, random.Random(seed))
        require_valid(text, RECURSIVE)
        assert state.complete


def test_too_little_room_is_told_apart() -> None:
    text, state = babble(schema_grammar(PERSON), 4, random.Random(0))
    assert not state.complete and not state.closing
    with pytest.raises(ValueError, match=r"."):
        json.loads(text)


@pytest.mark.parametrize("pattern", ["[a-z]{3,}-[0-9]+", "(ab)*c", "[a-z]*q", "a|b|", r"\d{4}-\d\d", 'é+/"x'])
def test_regex(pattern: str) -> None:
    for seed in range(5):
        text, _ = babble(Grammar("regex", pattern), 24, random.Random(seed))
        assert re.fullmatch(pattern, text)


def test_any_object() -> None:
    for seed in range(5):
        text, _ = babble(Grammar("json_object"), 40, random.Random(seed))
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("choice", ["required", "get_weather", "get"])
def test_tool_calls(choice: str, parallel: bool) -> None:
    schemas_by_name = {t["function"]["name"]: t["function"]["parameters"] for t in TOOLS}
    counts = set()
    for seed in range(8):
        text, _ = babble(calls_grammar(choice, parallel=parallel), 120, random.Random(seed))
        calls = parse_tool_calls(text)
        assert re.fullmatch(r"(<tool_call>\n\{.*\}\n</tool_call>\n?)+", text, re.DOTALL)
        for call in calls:
            assert choice in (call.name, "required")
            Draft202012Validator(schemas_by_name[call.name]).validate(call.arguments)
            assert call.arguments.keys() <= schemas_by_name[call.name]["properties"].keys()
        counts.add(len(calls))
    assert 0 not in counts
    assert max(counts) > 1 if parallel else counts == {1}


def test_auto_allows_text_and_calls_but_no_call_in_other_tokens() -> None:
    state = grammars().start(calls_grammar("auto"), 100)
    assert state.complete
    mark = tokenizer()._tokenizer.convert_tokens_to_ids("<tool_call>")
    others = {tokenizer()._tokenizer.convert_tokens_to_ids(text) for text in ("</tool_call>", "<tools>")}
    assert mark in allowed(state) and others & set(allowed(state)) == others - {mark + 1}
    for token in tokenizer().encode_text("<tool_call"):
        assert token in allowed(state)
        state.accept(token, 90)
    assert not any(tokenizer().decode([token]).startswith(">") for token in allowed(state))
    state.accept(tokenizer().encode_text("s and more")[0], 80)
    state.accept(mark, 70)
    assert not state.complete


def test_an_end_is_allowed_only_where_the_answer_may_end() -> None:
    (end,) = tokenizer().eos_token_ids
    state = grammars().start(Grammar("regex", "ab?"), 10)
    assert end not in allowed(state)
    state.accept(tokenizer().encode_text("a")[0], 10)
    assert end in allowed(state) and state.complete and not state.ended
    state.accept(tokenizer().encode_text("b")[0], 9)
    assert state.ended and state.complete and not state.closing


@pytest.mark.parametrize(
    ("schema", "stuck"),
    [
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
            "a",
        ),
        ({"type": "array", "items": {"type": "integer"}}, "0, "),
        ({"type": "array", "items": {"$ref": "#"}}, "["),
    ],
    ids=["a string", "an array", "nesting"],
)
def test_a_loop_is_left_by_allowed_tokens(schema: Any, stuck: str) -> None:
    ids: list[int] = []
    state = grammars(32).start(schema_grammar(schema), 400)
    cycle, closing = tokenizer().encode_text(stuck), [tokenizer().encode_text(text)[0] for text in '"]}']
    while not state.ended and len(ids) < 400:
        choices = allowed(state)
        wish = cycle[len(ids) % len(cycle)]
        likely = [token for token in (wish, *cycle, *closing) if token in choices]
        ids.append(state.accept(likely[0] if likely else choices[0], 400 - len(ids)))
        if state.complete:
            break
    assert state.complete and not state.closing
    assert 0 < state.num_forced < 200
    assert len(ids) < 300
    require_valid(tokenizer().decode(ids), schema)


def test_without_a_loop_length_an_answer_may_loop() -> None:
    state = grammars(0).start(Grammar("regex", "a{200}b"), 300)
    (token,) = tokenizer().encode_text("a")
    for taken in range(150):
        assert state.accept(token, 300 - taken) == token
    assert state.num_forced == 0


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {"a": {"items": {"type": "strin"}}}}, r"#/properties/a/items: Invalid type: strin"),
        ({"properties": {"a": {"not": {"type": "string"}}}}, r"#/properties/a: Unimplemented keys: \[\"not\"\]"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"$ref": "#/$defs/missing"}, "/\\$defs/missing"),
        ({"$ref": "https://example.com/schema.json"}, "example.com"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, r"minimum \(5\) is greater than maximum \(3\)"),
        ({"enum": []}, "anyOf is empty"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
    ],
)
def test_what_cannot_be_enforced_is_named(schema: Any, message: str) -> None:
    with pytest.raises(InvalidGrammar, match=message):
        grammars().start(schema_grammar(schema), 10)


def test_faults_in_tools_and_patterns_are_named() -> None:
    spec = {"tools": [*TOOLS, {"name": "bad", "parameters": {"properties": {"x": {"if": {}}}}}], "choice": "auto"}
    with pytest.raises(InvalidGrammar, match=r"tool 'bad' cannot be enforced: at #/properties/x: .*if"):
        grammars().start(Grammar("tool_calls", json.dumps(spec)), 10)
    with pytest.raises(InvalidGrammar, match=r"'\[' cannot be enforced: unclosed character class"):
        grammars().start(Grammar("regex", "["), 10)
    with pytest.raises(InvalidGrammar, match="no answer satisfies"):
        grammars().start(Grammar("regex", r"[^\s\S]"), 10)


def test_compiled_grammars_are_kept_and_bounded() -> None:
    own = Grammars(tokenizer(), VOCAB, 0)
    for i in range(70):
        own.start(Grammar("regex", f"a{{{i}}}b"), 10)
    assert len(own._compiled) == 64
    kept = own._compiled[Grammar("regex", "a{69}b")]
    own.start(Grammar("regex", "a{69}b"), 10)
    assert own._compiled[Grammar("regex", "a{69}b")] is kept


def test_states_of_one_grammar_are_independent() -> None:
    first, second = (grammars().start(Grammar("regex", "[ab]c"), 5) for _ in range(2))
    first.accept(tokenizer().encode_text("a")[0], 5)
    assert allowed(first) == list(tokenizer().encode_text("c"))
    assert set(tokenizer().encode_text("a") + tokenizer().encode_text("b")) <= set(allowed(second))


def test_a_tokenizer_without_an_end_is_refused() -> None:
    class Endless:
        eos_token_ids: frozenset[int] = frozenset()

    with pytest.raises(UnsupportedModel, match="ends an answer"):
        Grammars(Endless(), VOCAB, 0).start(Grammar("json_object"), 10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("properties", "required", "length"),
    [
        ({"/": {"type": "integer"}, "aa": {"type": "object", "properties": {}}, "a": {"type": "string"}}, ["aa"], 20),
        ({"a": {"pattern": "[0-9]-[0-9]", "type": "string"}, "b": {"type": "array", "minItems": 1}}, ["a", "b"], 24),
        ({"n": {"type": "number"}, "o": {"type": "object", "properties": {}}}, ["n", "o"], 20),
    ],
    ids=["names that begin alike", "a pattern before an array", "a number before an object"],
)
def test_a_short_ending_is_found(properties: dict[str, Any], required: list[str], length: int) -> None:
    way = shortest_way(schema_grammar({"type": "object", "properties": properties, "required": required}))
    assert len(way) <= length


def terms(count: int) -> dict[str, Any]:
    """At least ``count`` terms, each a value or a sum of two terms."""

    def one(kind: str, **fields: Any) -> dict[str, Any]:
        properties = {"kind": {"const": kind}, **fields}
        return {"type": "object", "properties": properties, "required": list(properties)}

    term = {"$ref": "#/$defs/term"}
    kinds = [one("sum", left=term, right=term), one("value", value={"type": "integer"})]
    return {"type": "array", "minItems": count, "items": term, "$defs": {"term": {"anyOf": kinds}}}


@pytest.mark.parametrize("count", [4, 12, 40])
def test_the_parts_of_a_long_answer_are_ended_one_by_one(count: int) -> None:
    way = shortest_way(schema_grammar(terms(count)))
    text = tokenizer().decode(way)
    assert len(json.loads(text)) == count
    require_valid(text, terms(count))


def test_an_answer_that_nests_ever_deeper_ends_in_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = []
    find = Closer.find
    monkeypatch.setattr(Closer, "find", lambda *args: searches.append(1) or find(*args))
    state, ids, room = grammars(32).start(schema_grammar(terms(12)), 1000), list[int](), 1000
    while not state.ended and len(ids) < room:
        choices = allowed(state)
        wish = [tokenizer().encode_text(text)[0] for text in "s7"]
        likely = [token for token in wish if token in choices]
        ids.append(state.accept(likely[0] if likely else choices[0], room - len(ids)))
    require_valid(tokenizer().decode(ids), terms(12))
    assert len(searches) < 60
