"""The contract's values, and the two backends that need no server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hypic_agents.backend import Backend, ChatRequest, grammar_of
from hypic_agents.calls import ToolCall
from hypic_agents.completion import Completion
from hypic_agents.core import Scope, Segment
from hypic_agents.errors import EngineClosed, InvalidInput, InvalidMessages
from hypic_agents.runtime.embedded import EmbeddedBackend
from hypic_agents.testing import FakeBackend
from tests.runtime.models import engine

FIND = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
ASK = [{"role": "user", "content": "Where is it?"}]
SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}


def test_backends_keep_the_contract() -> None:
    assert isinstance(FakeBackend(), Backend)
    assert isinstance(EmbeddedBackend(engine()), Backend)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tool_choice": "search", "tools": [FIND]}, "find"),
        ({"tool_choice": "required"}, "needs tools"),
        ({"timeout_s": 0}, "above 0"),
        ({"timeout_s": float("nan")}, "above 0"),
    ],
)
def test_requests_that_contradict_themselves_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ChatRequest(ASK, **changes)


def test_no_tool_is_shown_where_none_may_be_called() -> None:
    assert ChatRequest(ASK, tools=[FIND]).shown_tools == [FIND]
    assert ChatRequest(ASK, tools=[FIND], tool_choice="none").shown_tools == ()


@pytest.mark.parametrize(
    ("changes", "kind", "spec"),
    [
        ({}, None, None),
        ({"response_format": {"type": "text"}}, None, None),
        ({"response_format": {"type": "json_object"}}, "json_object", None),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, "json_schema", SCHEMA),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, "json_schema", SCHEMA),
        ({"tools": [FIND]}, "tool_calls", {"tools": [FIND], "choice": "auto", "parallel": True}),
        ({"tools": [FIND], "tool_choice": "none"}, None, None),
        (
            {"tools": [FIND], "tool_choice": "find", "parallel_tool_calls": False},
            "tool_calls",
            {"tools": [FIND], "choice": "find", "parallel": False},
        ),
        (
            {"tools": [FIND], "tool_choice": "none", "response_format": {"type": "json_object", "schema": SCHEMA}},
            "json_schema",
            SCHEMA,
        ),
        (
            {"tools": [FIND], "response_format": {"type": "json_object", "schema": SCHEMA}},
            "tool_calls",
            {"tools": [FIND], "choice": "auto", "parallel": True, "answer": SCHEMA},
        ),
        (
            {"tools": [FIND], "tool_choice": "required", "response_format": {"type": "json_object"}},
            "tool_calls",
            {"tools": [FIND], "choice": "required", "parallel": True},
        ),
    ],
)
def test_what_an_answer_is_held_to(changes: dict[str, Any], kind: str | None, spec: Any) -> None:
    grammar = grammar_of(ChatRequest(ASK, **changes))
    assert (grammar and grammar.kind) == kind
    if grammar is not None and spec is not None:
        # Property order carries meaning: it is the order in which the model writes.
        assert list(json.loads(grammar.spec).items()) == list(spec.items())


@pytest.mark.parametrize("form", [{"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": 1}])
def test_unknown_forms_are_refused(form: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="json_schema"):
        grammar_of(ChatRequest(ASK, response_format=form))


class TestFakeBackend:
    def test_replies_come_in_order_and_the_last_is_repeated(self) -> None:
        backend = FakeBackend(["one", "two"])
        request = ChatRequest(ASK)
        assert [backend.generate(request).text for _ in range(3)] == ["one", "two", "two"]
        assert backend.requests == [request] * 3

    def test_a_reply_may_be_computed_raised_or_whole(self) -> None:
        backend = FakeBackend(lambda request: str(len(request.messages)))
        assert backend.generate(ChatRequest(ASK * 2)).text == "2"
        with pytest.raises(InvalidMessages):
            FakeBackend([InvalidMessages("no")]).generate(ChatRequest(ASK))
        whole = backend.generate(ChatRequest(ASK))
        assert FakeBackend([whole]).generate(ChatRequest(ASK)) is whole

    def test_a_stream_makes_up_the_completion(self) -> None:
        backend = FakeBackend([[ToolCall("find", {"q": "a b"}), ToolCall("find", {})]])
        chunks = list(backend.stream(ChatRequest(ASK, tools=[FIND])))
        done = chunks[-1].completion
        assert isinstance(done, Completion)
        assert [call.arguments for call in done.tool_calls] == [{"q": "a b"}, {}]
        deltas = [delta for chunk in chunks for delta in chunk.tool_calls]
        texts = ["".join(d.arguments for d in deltas if d.index == i) for i in (0, 1)]
        assert [json.loads(text) for text in texts] == [{"q": "a b"}, {}]
        assert len({call.id for call in done.tool_calls}) == 2

    async def test_the_twins_do_the_same(self) -> None:
        backend = FakeBackend(["some words here"])
        request = ChatRequest(ASK)
        assert (await backend.agenerate(request)).text == backend.generate(request).text
        pieces = [chunk.text async for chunk in backend.astream(request)]
        assert pieces == [chunk.text for chunk in backend.stream(request)] == ["some ", "words ", "here", ""]

    def test_closed_streams_are_counted(self) -> None:
        backend = FakeBackend(["some words here"])
        list(backend.stream(ChatRequest(ASK)))
        stream = backend.stream(ChatRequest(ASK))
        next(stream)
        stream.close()
        assert backend.num_cancelled == 1

    def test_segments_are_cold_then_hits_until_invalidated(self) -> None:
        backend = FakeBackend()
        notes = Segment("The gate opens at nine.", source_id="notes", version="1")
        other = Segment("It is not in the prompt.")
        request = ChatRequest([{"role": "user", "content": f"{notes.text}\nWhen?"}], segments=[notes, other])
        states = [[span.state for span in backend.generate(request).report.spans] for _ in range(2)]
        assert states == [["cold"], ["hit"]]
        usage = backend.generate(request).usage
        assert 0 < usage.cached_tokens <= usage.prompt_tokens
        assert backend.invalidate(source_id="elsewhere") == 0
        assert backend.invalidate(source_id="notes", version_before="2") == 1
        assert backend.warm([request]) == 1
        elsewhere = ChatRequest(request.messages, segments=[notes], scope=Scope("another"))
        assert backend.generate(elsewhere).report.spans[0].state == "cold"

    def test_a_closed_one_refuses(self) -> None:
        backend = FakeBackend()
        backend.close()
        with pytest.raises(EngineClosed):
            backend.generate(ChatRequest(ASK))
