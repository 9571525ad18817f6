"""Messages in every form LlamaIndex has for them."""

from __future__ import annotations

import base64
from copy import deepcopy
from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from pydantic import BaseModel

from hypic_agents.core import Scope
from hypic_agents.errors import InvalidMessages
from hypic_agents.integrations.llama_index.messages import declared_segments, to_backend
from hypic_agents.prompt.messages import normalise

PAGE = "The keeper of the north gate came over the bridge; nobody saw her leave."
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": {"q": "x"}}}


def document(text: str, **more: Any) -> DocumentBlock:
    return DocumentBlock(data=base64.b64encode(text.encode()), **more)


@pytest.mark.parametrize("role", list(MessageRole))
def test_every_role_is_one_the_prompt_builder_knows(role: MessageRole) -> None:
    sent = to_backend([ChatMessage(role=role, content="Hi")])
    assert normalise(sent).messages[0]["content"] == "Hi"


def test_text_blocks_are_joined_as_llama_index_shows_them() -> None:
    message = ChatMessage(role="user", blocks=[TextBlock(text="one"), TextBlock(text="two")])
    assert to_backend([message]) == [{"role": "user", "content": message.content}]
    assert to_backend([ChatMessage(role="user", blocks=[])]) == [{"role": "user", "content": ""}]


def test_an_assistant_s_reasoning_and_calls() -> None:
    call = ToolCallBlock(tool_call_id="c1", tool_name="find", tool_kwargs={"q": "x"})
    blocks = [ThinkingBlock(content="Hm."), TextBlock(text="I look."), call]
    message = ChatMessage(role="assistant", blocks=blocks, additional_kwargs={"tool_calls": [CALL]})
    assert to_backend([message]) == [
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL], "reasoning_content": "Hm."}
    ]


class ClientCall(BaseModel):
    """As a client's library returns them."""

    id: str = "c1"
    type: str = "function"
    function: dict[str, Any] = {"name": "find", "arguments": '{"q": "x"}'}


@pytest.mark.parametrize("call", [CALL, ClientCall()])
def test_calls_beside_the_blocks(call: Any) -> None:
    message = ChatMessage(role="assistant", content=None, additional_kwargs={"tool_calls": [call]})
    result = ChatMessage(role="tool", content="found", additional_kwargs={"tool_call_id": "c1", "name": "find"})
    sent = to_backend([message, result])
    assert normalise(sent).messages[0]["tool_calls"] == [CALL]
    assert sent[1] == {"role": "tool", "content": "found", "tool_call_id": "c1", "name": "find"}


def test_documents_are_text_and_declared() -> None:
    blocks = [
        document(PAGE, title="gate.txt"),
        CitableBlock(title="t", source="besk", content=[TextBlock(text=PAGE * 2)]),
        CitationBlock(cited_content=TextBlock(text="a quote"), source="s", title="t", additional_location_info={}),
        TextBlock(text="Who came?"),
    ]
    messages = [ChatMessage(role="user", blocks=blocks)]
    assert to_backend(messages) == [{"role": "user", "content": f"{PAGE}\n{PAGE * 2}\nWho came?"}]
    segments = list(declared_segments(messages, Scope("acme")))
    assert [(s.source_id, s.text) for s in segments] == [("gate.txt", PAGE), ("besk", PAGE * 2)]
    assert {s.scope for s in segments} == {Scope("acme")}


def test_what_stands_before_a_cache_point_is_declared() -> None:
    point = CachePoint(cache_control=CacheControl(type="ephemeral"))
    messages = [ChatMessage(role="user", blocks=[TextBlock(text=PAGE), point, TextBlock(text="Who came?")])]
    assert to_backend(messages)[0]["content"] == f"{PAGE}\nWho came?"
    assert [segment.text for segment in declared_segments(messages, Scope())] == [PAGE]


@pytest.mark.parametrize(
    ("block", "name"),
    [
        (ImageBlock(image=b"\x89PNG\r\n\x1a\n", image_mimetype="image/png"), "image"),
        (document("%PDF-1.7 and so on", document_mimetype="application/pdf"), "document"),
        (DocumentBlock(data=base64.b64encode(b"\xff\xfe\x00"), document_mimetype="text/plain"), "document"),
    ],
)
def test_what_a_text_model_cannot_read_is_refused_by_name(block: Any, name: str) -> None:
    with pytest.raises(InvalidMessages, match=f"message 0.*'{name}'"):
        normalise(to_backend([ChatMessage(role="user", blocks=[TextBlock(text="See:"), block])]))


def test_messages_stay_as_they_are() -> None:
    call = ToolCallBlock(tool_call_id="c1", tool_name="find", tool_kwargs={"q": ["x"]})
    messages = [
        ChatMessage("Hi", additional_kwargs={"a": 1}),
        ChatMessage(role="assistant", blocks=[TextBlock(text="I look."), call]),
    ]
    before = deepcopy(messages)
    normalise(to_backend(messages))
    list(declared_segments(messages, Scope()))
    assert messages == before
