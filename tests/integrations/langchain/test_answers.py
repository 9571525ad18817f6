"""Completions, whole and in pieces, as LangChain messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

from hypic_agents.calls import InvalidToolCall, ToolCall
from hypic_agents.completion import Completion, ReuseReport, SpanReport, Usage
from hypic_agents.integrations.langchain import ChatHypic
from hypic_agents.testing import FakeBackend

CALLS = (ToolCall("find", {"q": "a b"}, "c1"), ToolCall("add", {"a": 1}, "c2"))
SPANS = (
    SpanReport("document", "a.txt", 5, 25, "hit", 10),
    SpanReport("document", "b.txt", 25, 45, "cold", 12),
    SpanReport("document", "c.txt", 45, 50, "live", 0, "too short"),
)
REPORT = ReuseReport("hypic", 60, 38, 12, 10, SPANS, ttft_s=0.5, build_s=0.25)


def completion(text: str = "", **changes: Any) -> Completion:
    return Completion(text, (1, 2, 3), "stop", Usage(60, 3, 10, 12), REPORT, **changes)


def answers(done: Completion, **options: Any) -> list[AIMessage]:
    """The whole answer, and the pieces of the streamed one added up."""
    model = ChatHypic(backend=FakeBackend([done]), **options)
    whole = model.invoke("Hi")
    full: AIMessageChunk | None = None
    for chunk in model.stream("Hi"):
        full = chunk if full is None else full + chunk  # type: ignore[assignment]
    assert full is not None
    assert full.chunk_position == "last"
    return [whole, full]


def without_index(blocks: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in block.items() if key != "index"} for block in blocks]


@pytest.mark.parametrize("version", ["v0", "v1"])
@pytest.mark.parametrize(
    ("done", "blocks"),
    [
        (completion("Yes. No."), [{"type": "text", "text": "Yes. No."}]),
        (
            completion("I look.", tool_calls=CALLS, reasoning="Hm, so."),
            [
                {"type": "reasoning", "reasoning": "Hm, so."},
                {"type": "text", "text": "I look."},
                {"type": "tool_call", "name": "find", "args": {"q": "a b"}, "id": "c1"},
                {"type": "tool_call", "name": "add", "args": {"a": 1}, "id": "c2"},
            ],
        ),
        (completion(tool_calls=CALLS[:1]), [{"type": "tool_call", "name": "find", "args": {"q": "a b"}, "id": "c1"}]),
        (completion(""), []),
    ],
)
def test_content_blocks(version: str, done: Completion, blocks: list[dict[str, Any]]) -> None:
    for message in answers(done, output_version=version):
        assert without_index(message.content_blocks) == blocks
        assert message.text == done.text
        assert [(c["name"], c["args"], c["id"]) for c in message.tool_calls] == [
            (c.name, c.arguments, c.id) for c in done.tool_calls
        ]
        if version == "v0":
            assert message.content == done.text


def test_usage_and_report_come_once() -> None:
    for message in answers(completion("Some words.", tool_calls=CALLS)):
        assert message.usage_metadata == {
            "input_tokens": 60,
            "output_tokens": 3,
            "total_tokens": 63,
            "input_token_details": {"cache_read": 10, "cache_creation": 12},
        }
        metadata = message.response_metadata
        assert metadata["model_name"] == "fake"
        assert metadata["finish_reason"] == "tool_calls"
        assert metadata["model_provider"] == ChatHypic()._get_ls_params()["ls_provider"]
        report = metadata["hypic"]
        assert report["reused_tokens"] + report["cold_tokens"] + report["live_tokens"] == report["prompt_tokens"]
        reasons = [(s["source_id"], s["state"], s["reason"]) for s in report["segments"]]
        assert reasons == [
            ("a.txt", "hit", ""),
            ("b.txt", "cold", "not in the store yet: built for this request"),
            ("c.txt", "live", "too short"),
        ]
        assert json.loads(json.dumps(metadata)) == metadata


def test_invalid_calls_are_kept() -> None:
    call = InvalidToolCall("find", '{"q": "a', "c1", "the answer ended inside the call")
    message = ChatHypic(backend=FakeBackend([completion(invalid_tool_calls=(call,))])).invoke("Hi")
    assert message.tool_calls == []
    assert message.invalid_tool_calls == [
        {"name": "find", "args": '{"q": "a', "id": "c1", "error": call.error, "type": "invalid_tool_call"}
    ]
    assert message.content_blocks[0]["type"] == "invalid_tool_call"


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_an_answer_goes_back_into_the_next_prompt(version: str) -> None:
    backend = FakeBackend([completion("I look.", tool_calls=CALLS, reasoning="Hm.")])
    model = ChatHypic(backend=backend, output_version=version)
    for message in [model.invoke("Hi"), *answers(completion("I look.", tool_calls=CALLS, reasoning="Hm."))]:
        model.invoke([HumanMessage("Hi"), message, HumanMessage("And?")])
        sent = backend.requests[-1].messages[1]
        assert sent["reasoning_content"] == "Hm."
        assert [call["id"] for call in sent["tool_calls"]] == ["c1", "c2"]
