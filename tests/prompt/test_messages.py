from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.errors import InvalidMessages
from hypic_agents.prompt.messages import normalise
from tests import strategies

Message = dict[str, Any]


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def assistant(content: Any, *calls: Message) -> Message:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {})}


def result(call_id: str, content: Any = "done") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def call(call_id: str, name: str = "go", **arguments: Any) -> Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def shape(*messages: Message) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in normalise(messages).messages]


roles = st.sampled_from(["system", "user", "assistant", "tool", "developer", "human", "ai"])
chats = st.lists(st.fixed_dictionaries({"role": roles, "content": strategies.words | st.none()}), max_size=8)


@given(chats)
def test_strict_templates_accept_what_comes_out(messages: list[Message]) -> None:
    normalised = normalise(messages).messages
    assert all(m["role"] != "system" for m in normalised[1:])
    assert all(a["role"] != b["role"] or a["role"] == "tool" for a, b in pairwise(normalised))
    assert all(isinstance(m["content"], str) for m in normalised)
    assert normalise(normalised).messages == normalised
    for message in messages:
        assert any((message["content"] or "") in m["content"] for m in normalised)


@given(chats, st.integers(1, 7))
def test_a_longer_conversation_extends_a_shorter_one(messages: list[Message], length: int) -> None:
    shorter, longer = normalise(messages[:length]).messages, normalise(messages).messages
    assert longer[: len(shorter) - 1] == shorter[:-1]
    if shorter:
        assert longer[len(shorter) - 1]["content"].startswith(shorter[-1]["content"])


def test_late_system_message_becomes_a_user_message() -> None:
    chat = [user("hi"), assistant("hello"), {"role": "system", "content": "be brief"}, user("who are you?")]
    assert shape(*chat) == [("user", "hi"), ("assistant", "hello"), ("user", "be brief\n\nwho are you?")]


def test_leading_system_messages_are_one() -> None:
    chat = [{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}, user("q")]
    assert shape(*chat) == [("system", "a\n\nb"), ("user", "q")]
    assert normalise(chat).system_parts == ("a", "b")


def test_two_user_messages_are_merged_and_keep_their_parts() -> None:
    chat = normalise([user("first part"), user("second part")])
    assert shape(user("first part"), user("second part")) == [("user", "first part\n\nsecond part")]
    assert chat.turn_parts == (("turn", "first part"),)


def test_merged_assistant_messages_keep_all_calls() -> None:
    chat = [user("q"), assistant("a", call("c0")), assistant("b", call("c1"))]
    merged = normalise(chat).messages[-1]
    assert merged["content"] == "a\n\nb"
    assert [c["id"] for c in merged["tool_calls"]] == ["c0", "c1"]


@pytest.mark.parametrize(
    "asked",
    [
        {"id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'},
        {"id": "c1", "name": "weather", "args": {"city": "Oslo"}, "type": "tool_call"},
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}},
    ],
)
def test_tool_calls_of_any_shape(asked: Message) -> None:
    assert normalise([user("q"), assistant("", asked)]).messages[1]["tool_calls"] == [
        call("c1", "weather", city="Oslo")
    ]


@pytest.mark.parametrize(("given_text", "kept"), [("{oops", "{oops"), ("[1]", "[1]"), ("", {}), (None, {})])
def test_arguments_that_are_no_json_object(given_text: str | None, kept: Any) -> None:
    chat = normalise([user("q"), assistant("", {"name": "f", "arguments": given_text})])
    assert chat.messages[1]["tool_calls"][0]["function"]["arguments"] == kept


def test_absent_content_is_empty() -> None:
    assert shape(user("go"), assistant(None, call("c1")))[1] == ("assistant", "")
    assert shape({"role": "user"}) == [("user", "")]


def test_results_come_in_call_order_behind_their_calls() -> None:
    chat = [user("q"), assistant("", call("c0"), call("c1")), result("c1", "1"), user("more"), result("c0", "0")]
    assert shape(*chat)[2:] == [("tool", "0"), ("tool", "1"), ("user", "more")]


def test_results_of_unknown_calls_come_last() -> None:
    chat = [user("q"), assistant("", call("c0")), result("x", "x"), result("c0", "0")]
    assert shape(*chat)[2:] == [("tool", "0"), ("tool", "x")]


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        (["", "question"], "question"),
        ([" ", "\n"], " \n"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": " "}, {"type": "text", "text": "b"}, "\n"], "a b"),
        ([], ""),
        ([{"type": "text", "text": None}], ""),
    ],
)
def test_text_blocks_are_concatenated(blocks: list[Any], text: str) -> None:
    assert shape(user(blocks)) == [("user", text)]


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video", "image", "tool_use"])
def test_blocks_other_than_text_are_named(kind: str) -> None:
    chat = [
        user("look"),
        assistant("", call("c1")),
        result("c1", [{"type": "text", "text": "frame 1"}, {"type": kind}]),
    ]
    with pytest.raises(InvalidMessages, match=f"message 2.*{kind}"):
        normalise(chat)


def test_reasoning_and_call_blocks_of_an_assistant() -> None:
    blocks = [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "text", "text": "ok"},
        {"type": "tool_call", "name": "go"},
    ]
    message = normalise([user("q"), assistant(blocks, call("c1"))]).messages[1]
    assert (message["content"], message["reasoning_content"]) == ("ok", "hm")
    with pytest.raises(InvalidMessages, match="tool_call"):
        normalise([user("q"), assistant(blocks)])


@pytest.mark.parametrize(
    "message",
    ["text", {"role": "oracle", "content": "x"}, {"content": "x"}, user(3), user({"a": 1}), user([3]), user("\ud800")],
)
def test_messages_no_template_can_take_are_refused(message: Any) -> None:
    with pytest.raises(InvalidMessages, match="message 0"):
        normalise([message])


def test_calls_without_a_name_are_refused() -> None:
    with pytest.raises(InvalidMessages, match="without a name"):
        normalise([user("q"), assistant("", {"id": "c1"})])


def test_the_last_user_text_is_no_turn() -> None:
    chat = normalise([user(["doc", "question"]), assistant("", call("c1")), result("c1", "long result")])
    assert chat.turn_parts == (("turn", "doc"), ("turn", ""), ("trace", "long result"))
