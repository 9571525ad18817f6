"""LlamaIndex's LLM on servers of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel

from hypic_agents.integrations.llama_index import HypicLLM
from hypic_agents.integrations.sglang import SGLangBackend
from tests.event_loop import own_loop  # noqa: F401  pytest finds it here
from tests.integrations.sglang.loopback import Fault, Loopback


class Gate(BaseModel):
    """A gate."""

    number: int


@pytest.fixture(params=["stock", "hypic"])
def remote(
    request: pytest.FixtureRequest, serve: Callable[..., Loopback], connect: Callable[..., SGLangBackend]
) -> tuple[Loopback, HypicLLM]:
    server = serve(request.param)
    return server, HypicLLM(backend=connect(server), max_tokens=60)


MESSAGES = [ChatMessage(role="user", content="Who keeps gate 2?")]


async def test_all_ways_of_asking_agree(remote: tuple[Loopback, HypicLLM]) -> None:
    _, llm = remote
    text = (await asyncio.to_thread(llm.chat, MESSAGES)).message.content
    assert text
    assert (await llm.achat(MESSAGES)).message.content == text
    assert [one async for one in await llm.astream_chat(MESSAGES)][-1].message.content == text
    assert (await asyncio.to_thread(lambda: list(llm.stream_chat(MESSAGES))))[-1].message.content == text
    assert (await llm.acomplete("Who keeps gate 2?")).text == llm.complete("Who keeps gate 2?").text


def test_what_it_says_of_itself(remote: tuple[Loopback, HypicLLM]) -> None:
    _, llm = remote
    assert llm.metadata.model_name == "tiny"
    assert llm.metadata.is_function_calling_model
    assert llm.metadata.context_window > 3900
    assert llm.count_tokens(MESSAGES) > len(llm.tokenizer("Who keeps gate 2?"))


def test_tools_and_structured_answers(remote: tuple[Loopback, HypicLLM]) -> None:
    _, llm = remote

    def find(thing: str) -> str:
        """Find a thing."""
        return thing

    tool = FunctionTool.from_defaults(find)
    answer = llm.chat_with_tools([tool], user_msg="Find the key.", tool_required=True)
    calls = llm.get_tool_calls_from_response(answer)
    assert [call.tool_name for call in calls] == ["find"]
    gate = llm.structured_predict(Gate, PromptTemplate("Which gate?"))
    assert isinstance(gate.number, int)


def test_nodes_are_reused(remote: tuple[Loopback, HypicLLM]) -> None:
    server, llm = remote
    nodes = [
        NodeWithScore(
            node=TextNode(text=f"Notes {i}: gate {i} opens at {i} in the morning, says Velmo. " * 4, id_=str(i))
        )
        for i in range(3)
    ]
    synthesizer = get_response_synthesizer(llm=llm)
    sent = []
    for order in (nodes, nodes[::-1], [nodes[1], nodes[0], nodes[2]]):
        server.clear()
        assert str(synthesizer.synthesize("Which gate opens first?", order))
        sent.append(len(server.bodies("/generate")))
    if server.kind == "hypic":
        # Other white space follows the last node than follows the others, so each has two forms.
        assert sent[1:] == [3, 1]


def test_failures_reach_the_user(remote: tuple[Loopback, HypicLLM]) -> None:
    server, llm = remote
    assert llm.metadata.model_name
    path = "/generate" if server.kind == "hypic" else "/v1/chat/completions"
    server.faults[path] += [Fault(status=500, body=b"out of memory")] * 40
    with pytest.raises(Exception, match="out of memory"):
        llm.chat(MESSAGES)
    server.faults[path].clear()
