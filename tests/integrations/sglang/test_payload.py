"""What servers are sent, field by field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hypic_agents.backend import ChatRequest
from hypic_agents.core import Grammar, SamplingParams
from hypic_agents.integrations.sglang.payload import (
    abort_payload,
    answer_form,
    chat_payload,
    generate_payload,
    warm_payload,
)

ASK = [{"role": "user", "content": "Where?"}]
FIND = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
SEEK = {"name": "seek", "description": "Seek."}
SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
NEUTRAL = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


def chat(server_forces_calls: bool = True, **changes: Any) -> dict[str, Any]:
    request = ChatRequest(ASK, **changes)
    return chat_payload(
        request,
        answer_form(request, server_forces_calls=server_forces_calls),
        model="m",
        rid="r",
        messages=ASK,
        input_ids=[1, 2],
        max_tokens=7,
        cache_salt="s",
        stream=False,
    )


def test_a_plain_question() -> None:
    sampling = SamplingParams(temperature=0.5, top_p=0.9, stop=("x",), seed=3)
    assert chat(sampling=sampling) == {
        "model": "m",
        "rid": "r",
        "messages": ASK,
        "input_ids": [1, 2],
        "cache_salt": "s",
        "max_completion_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        **NEUTRAL,
        "stop": ["x"],
        "seed": 3,
        "stream": False,
        "return_token_ids": True,
    }


def test_a_stream_asks_for_its_usage() -> None:
    request = ChatRequest(ASK)
    body = chat_payload(
        request,
        answer_form(request, server_forces_calls=True),
        model="m",
        rid="r",
        messages=ASK,
        input_ids=None,
        max_tokens=1,
        cache_salt=None,
        stream=True,
    )
    assert body["stream_options"] == {"include_usage": True}
    assert not {"input_ids", "cache_salt", "stop", "seed", "tools"} & set(body)


def test_forms_of_answers() -> None:
    sent = chat(response_format=FORM)["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["strict"] is True
    assert list(sent["json_schema"]["schema"]["properties"]) == ["b", "a"]
    assert chat(response_format={"type": "json_object"})["response_format"]["json_schema"]["schema"] == {
        "type": "object"
    }
    assert chat(sampling=SamplingParams(grammar=Grammar("regex", "[ab]+")))["regex"] == "[ab]+"


@pytest.mark.parametrize(
    ("choice", "forces", "sent", "held"),
    [
        ("auto", True, "auto", False),
        ("required", True, "required", False),
        ("find", True, {"type": "function", "function": {"name": "find"}}, False),
        ("required", False, "auto", True),
        ("find", False, "auto", True),
    ],
)
def test_tools(choice: str, forces: bool, sent: Any, held: bool) -> None:
    body = chat(forces, tools=[FIND, SEEK], tool_choice=choice, parallel_tool_calls=False)
    assert body["tools"] == [FIND, {"type": "function", "function": SEEK}]
    assert body["tool_choice"] == sent
    assert body["parallel_tool_calls"] is False
    assert ("response_format" in body) is held
    if held:
        schema = body["response_format"]["json_schema"]["schema"]
        assert (schema["minItems"], schema["maxItems"]) == (1, 1)
        items = schema["items"].get("anyOf", [schema["items"]])
        names = [item["properties"]["name"]["enum"] for item in items]
        assert names == ([["find"]] if choice == "find" else [["find"], ["seek"]])


def test_tools_that_may_not_be_called_are_not_sent() -> None:
    assert "tools" not in chat(tools=[FIND], tool_choice="none")


def test_calls_or_an_answer_are_one_schema() -> None:
    body = chat(tools=[FIND], response_format=FORM)
    answer, calls = body["response_format"]["json_schema"]["schema"]["anyOf"]
    assert answer == SCHEMA
    assert calls["items"]["properties"]["name"]["enum"] == ["find"]
    assert body["tool_choice"] == "auto"


def test_arguments_of_earlier_calls_are_text() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "find", "arguments": {"thing": "key"}}}]
    request = ChatRequest(ASK)
    body = chat_payload(
        request,
        answer_form(request, server_forces_calls=True),
        model="m",
        rid="r",
        messages=[{"role": "assistant", "content": "", "tool_calls": calls}],
        input_ids=None,
        max_tokens=1,
        cache_salt=None,
        stream=False,
    )
    assert json.loads(body["messages"][0]["tool_calls"][0]["function"]["arguments"]) == {"thing": "key"}
    assert calls[0]["function"] == {"name": "find", "arguments": {"thing": "key"}}


def test_text_for_a_hypic_build() -> None:
    sampling = SamplingParams(stop=("x",), seed=3)
    request = ChatRequest(ASK, tools=[FIND], tool_choice="required", sampling=sampling)
    form = answer_form(request, server_forces_calls=False)
    body = generate_payload(form, sampling, rid="r", text="a<<PIC_SEP>>b", max_tokens=7, stream=True)
    schema = json.loads(body["sampling_params"].pop("json_schema"))
    assert schema["items"]["properties"]["name"]["enum"] == ["find"]
    assert body == {
        "rid": "r",
        "text": "a<<PIC_SEP>>b",
        "stream": True,
        "sampling_params": {
            "max_new_tokens": 7,
            "temperature": 0.0,
            "top_p": 1.0,
            **NEUTRAL,
            "stop": ["x"],
            "sampling_seed": 3,
            "skip_special_tokens": False,
        },
    }


def test_what_is_sent_ahead_is_not_the_last_part() -> None:
    body = warm_payload("A document.", "<<PIC_SEP>>", rid="r")
    assert body["text"].split("<<PIC_SEP>>")[0] == "A document."
    assert body["text"].split("<<PIC_SEP>>")[1]
    assert body["sampling_params"] == {"max_new_tokens": 1, "temperature": 0.0}


def test_one_request_is_aborted_and_no_other() -> None:
    assert abort_payload("r") == {"rid": "r", "abort_all": False}
