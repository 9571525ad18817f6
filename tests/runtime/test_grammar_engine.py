"""Grammars in the engine: any batch, greedy or sampled, cold or warm; and nothing changes for those without."""

from __future__ import annotations

import gc
import json
import random
import re
import weakref
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator

from hypic_agents.core import Grammar, Prompt, SamplingParams
from hypic_agents.errors import HypicError, InvalidGrammar, InvalidInput
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.grammar_state import GrammarState
from hypic_agents.runtime.request import Request
from tests.runtime.grammars import PERSON, RECURSIVE, TOOLS, calls_grammar, schema_grammar, schemas, shortest_way
from tests.runtime.models import engine, make_prompt, segment_ids

REGEX = Grammar("regex", "[a-z]{2,5}(-[0-9]{2})+")
GRAMMARS = [schema_grammar(PERSON), schema_grammar(RECURSIVE), REGEX, calls_grammar("get_weather"), None]
SAMPLINGS = [SamplingParams(max_tokens=40), SamplingParams(max_tokens=40, temperature=1.3, top_p=0.95, seed=5)]


def some_prompt(seed: int = 0) -> Prompt:
    rng = random.Random(seed)
    return make_prompt([segment_ids(rng, n) for n in (24, 37)], system=segment_ids(rng, 20))


def require_held(text: str, grammar: Grammar | None) -> None:
    if grammar is not None and grammar.kind == "json_schema":
        Draft202012Validator(json.loads(grammar.spec)).validate(json.loads(text))
    elif grammar is REGEX:
        assert re.fullmatch(REGEX.spec, text)


@pytest.fixture(scope="module")
def warm() -> Engine:
    return engine()


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
def test_a_mixed_batch_answers_as_each_alone(warm: Engine, sampling: SamplingParams) -> None:
    requests = [warm.submit(some_prompt(i), replace(sampling, grammar=g)) for i, g in enumerate(GRAMMARS)]
    for i, (request, grammar) in enumerate(zip(requests, GRAMMARS, strict=True)):
        together = warm._finish(request)
        require_held(together.text, grammar)
        alone = warm.generate(some_prompt(i), replace(sampling, grammar=grammar))
        assert together.token_ids == alone.token_ids
        assert ("grammar" in together.metadata) == (grammar is not None)
    free = engine().generate(some_prompt(4), sampling)
    assert free.token_ids == together.token_ids


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("grammar", GRAMMARS[:-1], ids=["schema", "recursive", "regex", "tool"])
def test_what_must_follow_takes_no_pass(
    warm: Engine, grammar: Grammar, sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer() -> tuple[tuple[int, ...], list[int]]:
        request, lengths = warm.submit(some_prompt(), replace(sampling, max_tokens=120, grammar=grammar)), [0]
        while not request.done:
            warm.step()
            lengths.append(len(request.token_ids))
        return tuple(request.token_ids), lengths

    jumping, lengths = answer()
    monkeypatch.setattr(Request, "push_settled", lambda request: None)
    stepping, slow = answer()
    assert jumping == stepping
    assert slow[: len(stepping) + 1] == list(range(len(stepping) + 1))  # one a pass, and perhaps one for the end
    # Each pass leads on to where the grammar leaves a choice.
    state, must = warm._grammars.start(grammar, 120), []
    for left, token in zip(range(120, 0, -1), jumping, strict=False):
        must.append(state.forced is not None)
        state.accept(token, left)
    assert len(lengths) <= len(slow) - sum(must[1:])
    assert grammar is REGEX or sum(must) > 5


@pytest.mark.parametrize("grammar", GRAMMARS[:-1], ids=["schema", "recursive", "regex", "tool"])
def test_law_3_cold_equals_warm(warm: Engine, grammar: Grammar) -> None:
    for sampling in SAMPLINGS:
        cold = engine().generate(some_prompt(), replace(sampling, grammar=grammar))
        again = [warm.generate(some_prompt(), replace(sampling, grammar=grammar)) for _ in range(2)]
        assert {cold.token_ids} == {one.token_ids for one in again}


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas)
def test_answers_of_a_random_model_parse_and_validate(warm: Engine, schema: Any) -> None:
    sampling = SamplingParams(max_tokens=160, temperature=1.0, seed=1, grammar=schema_grammar(schema))
    answer = warm.generate(some_prompt(), sampling)
    require_held(answer.text, sampling.grammar)
    assert answer.metadata["grammar"]["complete"]


def test_a_call_the_model_finished_is_a_call(warm: Engine) -> None:
    answer = warm.generate(some_prompt(), SamplingParams(max_tokens=40, grammar=calls_grammar("get")))
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [("get", {})]
    assert answer.finish_reason == "stop" and not answer.invalid_tool_calls


def test_a_call_cut_by_max_tokens_parses_and_is_no_valid_call(warm: Engine) -> None:
    grammar = calls_grammar("get_weather")
    held = SamplingParams(max_tokens=len(shortest_way(grammar)) + 2, grammar=grammar)
    for seed in range(8):
        answer = warm.generate(some_prompt(seed), held)
        assert answer.text.endswith("}}\n</tool_call>")
        if answer.metadata["grammar"]["forced_tokens"]:
            assert answer.finish_reason == "length" and not answer.tool_calls
            (call,) = answer.invalid_tool_calls
            Draft202012Validator(TOOLS[0]["function"]["parameters"]).validate(json.loads(call.arguments))
            return
    pytest.fail("no answer was cut")


def test_max_tokens_below_the_shortest_answer_is_reported(warm: Engine) -> None:
    answer = warm.generate(some_prompt(), SamplingParams(max_tokens=3, grammar=schema_grammar(PERSON)))
    assert answer.finish_reason == "length"
    assert answer.metadata["grammar"] == {"complete": False, "forced_tokens": 0}


def test_a_stop_string_still_cuts(warm: Engine) -> None:
    answer = warm.generate(
        some_prompt(), SamplingParams(max_tokens=40, grammar=schema_grammar(PERSON), stop=('"age"',))
    )
    assert answer.text.endswith('", ')
    assert answer.finish_reason == "stop"
    assert answer.metadata["grammar"]["complete"] is False


def test_a_stream_is_the_answer(warm: Engine) -> None:
    held = SamplingParams(max_tokens=40, grammar=schema_grammar(PERSON))
    assert "".join(chunk.text for chunk in warm.stream(some_prompt(), held)) == warm.generate(some_prompt(), held).text


def test_finished_and_cancelled_requests_drop_their_matcher(warm: Engine) -> None:
    held = SamplingParams(max_tokens=200, grammar=schema_grammar(RECURSIVE))
    requests = [warm.submit(some_prompt(i), held) for i in range(2)]
    kept = [weakref.ref(request.grammar) for request in requests if request.grammar is not None]
    warm.step()
    assert len(kept) == 2 and all(ref() is not None for ref in kept)
    warm.cancel(requests[0])
    assert requests[0].completion is not None and requests[0].completion.finish_reason == "cancelled"
    warm.cancel(requests[1])
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_a_bad_grammar_is_refused_before_anything_is_computed() -> None:
    one = engine()
    with pytest.raises(InvalidGrammar, match="strin"):
        one.submit(some_prompt(), SamplingParams(grammar=schema_grammar({"type": "strin"})))
    assert one.step() == []
    assert one.stats().entries == 0


def test_a_grammar_that_fails_on_the_way_touches_no_other(warm: Engine) -> None:
    good = warm.submit(some_prompt(1), SamplingParams(max_tokens=12, grammar=REGEX))
    bad = warm.submit(some_prompt(2), SamplingParams(max_tokens=12, grammar=REGEX))
    warm.step()
    assert isinstance(bad.grammar, GrammarState)
    bad.grammar._matcher.consume_token(0)  # no part of the pattern: the matcher stays in error from here on
    with pytest.raises(HypicError, match="could not be followed"):
        warm._finish(bad)
    require_held(warm._finish(good).text, REGEX)
    assert warm.step() == []


def test_the_length_of_loops_is_checked() -> None:
    with pytest.raises(InvalidInput, match="grammar_loop_len=-1"):
        EngineConfig(grammar_loop_len=-1)
