"""Responses, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.callbacks.token_counting import get_tokens_from_response

from hypic_agents.calls import InvalidToolCall, ToolCall
from hypic_agents.completion import Completion, ReuseReport, SpanReport, Usage
from hypic_agents.integrations.llama_index import HypicLLM
from hypic_agents.testing import FakeBackend

SPANS = (SpanReport("document", "a", 2, 8, "hit", 6), SpanReport("document", "b", 8, 10, "cold", 2))
REPORT = ReuseReport("hypic", 12, 4, 2, 6, SPANS)
CALLS = (ToolCall("find", {"q": "tea", "n": [1]}, "c1"), ToolCall("stop", {}, "c2"))
WHOLE = Completion("I look.", (1, 2, 3), "stop", Usage(12, 3, 6, 2), REPORT, CALLS, reasoning="Hm, tea.")
HI = [ChatMessage("Hi")]


def test_a_whole_answer() -> None:
    response = HypicLLM(backend=FakeBackend([WHOLE])).chat(HI)
    assert response.message.blocks == [
        ThinkingBlock(content="Hm, tea."),
        TextBlock(text="I look."),
        ToolCallBlock(tool_call_id="c1", tool_name="find", tool_kwargs={"q": "tea", "n": [1]}),
        ToolCallBlock(tool_call_id="c2", tool_name="stop", tool_kwargs={}),
    ]
    assert response.message.content == "I look."
    assert response.message.additional_kwargs == {
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": "tea", "n": [1]}'}},
            {"id": "c2", "type": "function", "function": {"name": "stop", "arguments": "{}"}},
        ]
    }
    assert response.raw["usage"] == {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 6, "created_tokens": 2},
    }
    assert (response.raw["model"], response.raw["finish_reason"]) == ("fake", "tool_calls")
    hit, cold = response.raw["hypic"]["segments"]
    assert (hit["source_id"], hit["state"], hit["composed_tokens"], hit["reason"]) == ("a", "hit", 6, "")
    assert cold["reason"].startswith("not in the store yet")
    assert response.additional_kwargs["cached_tokens"] == 6
    assert response.additional_kwargs["hypic"] == response.raw["hypic"]
    json.dumps(response.raw)
    assert get_tokens_from_response(response) == (12, 3)


@pytest.mark.parametrize("completion", [WHOLE, Completion("one two", (1,), "length", Usage(2, 1), REPORT)])
async def test_streams_are_cumulative_and_end_as_the_whole_answer(completion: Completion) -> None:
    llm = HypicLLM(backend=FakeBackend([completion]))
    whole = llm.chat(HI)
    assert await llm.achat(HI) == whole
    streamed = list(llm.stream_chat(HI))
    assert [r async for r in await llm.astream_chat(HI)] == streamed
    text = thinking = ""
    for response in streamed:
        text += response.delta or ""
        thinking += response.additional_kwargs.get("thinking_delta", "")
        assert (response.message.content or "") == text
    assert (text, thinking) == (completion.text, completion.reasoning)
    assert all(response.raw is None for response in streamed[:-1])
    assert streamed[-1].model_copy(update={"delta": None}) == whole
    assert len({id(response.message) for response in streamed}) == len(streamed)


async def test_plain_prompts() -> None:
    backend = FakeBackend(["one two"])
    llm = HypicLLM(backend=backend)
    whole = llm.complete("Hi", formatted=True)
    assert (whole.text, whole.raw["usage"]["completion_tokens"]) == ("one two", 2)
    assert await llm.acomplete("Hi") == whole
    streamed = list(llm.stream_complete("Hi"))
    assert [(r.text, r.delta) for r in streamed] == [("one ", "one "), ("one two", "two"), ("one two", "")]
    assert [r async for r in await llm.astream_complete(prompt="Hi")] == streamed
    assert {str(request.messages) for request in backend.requests} == {"[{'role': 'user', 'content': 'Hi'}]"}


def test_calls_while_they_are_written() -> None:
    backend = FakeBackend([ToolCall("find", {"q": "green tea"}, "c1")])
    llm = HypicLLM(backend=backend)
    seen: list[Any] = []
    for response in llm.stream_chat(HI):
        (call,) = llm.get_tool_calls_from_response(response)
        assert (call.tool_id, call.tool_name) == ("c1", "find")
        seen.append(call.tool_kwargs)
    assert seen == [{}, {}, {"q": "green "}, {"q": "green tea"}, {"q": "green tea"}]


def test_a_call_that_was_cut_short_is_never_carried_out() -> None:
    cut = InvalidToolCall("delete", '{"path": "/a', "c1", "the answer ended")
    completion = Completion("", (1,), "length", Usage(2, 1), REPORT, invalid_tool_calls=(cut,))
    llm = HypicLLM(backend=FakeBackend([completion]))
    response = llm.chat(HI)
    assert llm.get_tool_calls_from_response(response, error_on_no_tool_call=False) == []
    assert response.message.additional_kwargs["invalid_tool_calls"][0]["arguments"] == '{"path": "/a'
    assert response.raw["finish_reason"] == "length"


def test_llama_index_s_own_counter_counts() -> None:
    counter = TokenCountingHandler(tokenizer=str.split)
    llm = HypicLLM(backend=FakeBackend([WHOLE]), callback_manager=CallbackManager([counter]))
    llm.chat(HI)
    list(llm.stream_chat(HI))
    assert (counter.prompt_llm_token_count, counter.completion_llm_token_count) == (24, 6)
