"""Public recipes as their authors wrote them, seen from outside: what a user reads in ``usage_metadata``.

Agents call their retriever themselves. The model is a random one: what it writes is real and means nothing, so the
decision to call the tool is put into its answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, TodoListMiddleware
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import LLMResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnablePassthrough
from langchain_core.tools import create_retriever_tool

from hypic_agents.backend import ChatRequest
from hypic_agents.calls import ToolCall
from hypic_agents.completion import Completion
from hypic_agents.core import Scope
from hypic_agents.integrations.langchain import ChatHypic
from hypic_agents.integrations.langchain.observe import REGISTRY
from tests.integrations.recorder import Recorder
from tests.runtime.models import engine

Recipe = Callable[[ChatHypic, BaseRetriever, RunnableConfig], Awaitable[object]]

PAGES = [
    Document(
        f"Notes on {town}\nThe mayor of {town} is called {name}. {town} lies on the river Besk, with {i + 3} bridges. "
        f"Letters to {town} need the post code KX-{i}82, and the market of {town} is held on day {i + 2}.",
        metadata={"source": f"{town}.txt"},
    )
    for i, (town, name) in enumerate([("Tarnovo", "Golser"), ("Velden", "Wardask"), ("Ishmere", "Dubik")])
]
QUESTION = "Who is the mayor of Velden?"
CHAT = ChatPromptTemplate.from_messages([("system", "Answer from the notes."), ("human", "{context}\n\n{input}")])


class Decided(Recorder):
    """The random model, which looks things up first where it can, and answers then."""

    def _decided(self, request: ChatRequest, completion: Completion) -> Completion:
        can = any(tool["function"]["name"] == "notes" for tool in request.tools)
        looked = any(message["role"] == "tool" for message in request.messages)
        calls = (ToolCall("notes", {"query": QUESTION}, "call_0"),) if can and not looked else ()
        return replace(completion, tool_calls=calls, invalid_tool_calls=())

    def generate(self, request: ChatRequest) -> Completion:
        return self._decided(request, super().generate(request))

    async def agenerate(self, request: ChatRequest) -> Completion:
        return self._decided(request, await super().agenerate(request))


class Shelf(BaseRetriever):
    """Gives the pages it holds, in its order."""

    pages: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.pages


class Watch(BaseCallbackHandler):
    """Every message of the model."""

    def __init__(self) -> None:
        self.messages: list[AIMessage] = []

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        self.messages.append(response.generations[0][0].message)  # type: ignore[union-attr]


def joined(pages: Sequence[Document]) -> str:
    return "\n\n".join(page.page_content for page in pages)


async def retrieval_chain(model: ChatHypic, shelf: BaseRetriever, config: RunnableConfig) -> object:
    chain = create_retrieval_chain(shelf, create_stuff_documents_chain(model, CHAT))
    return await chain.ainvoke({"input": QUESTION}, config)


async def expression_language(model: ChatHypic, shelf: BaseRetriever, config: RunnableConfig) -> object:
    chain = {"context": shelf | joined, "input": RunnablePassthrough()} | CHAT | model | StrOutputParser()
    return list(chain.stream(QUESTION, config))


async def agent_with_middleware(model: ChatHypic, shelf: BaseRetriever, config: RunnableConfig) -> object:
    middleware = [TodoListMiddleware(), SummarizationMiddleware(model, trigger=("fraction", 0.8))]
    tools = [create_retriever_tool(shelf, "notes", "Looks up notes on towns.")]
    agent = create_agent(model, tools, system_prompt="You know the towns.", middleware=middleware)
    return await agent.ainvoke({"messages": [("user", QUESTION)]}, config)


async def default_deep_agent(model: ChatHypic, shelf: BaseRetriever, config: RunnableConfig) -> object:
    tools = [create_retriever_tool(shelf, "notes", "Looks up notes on towns.")]
    return create_deep_agent(model, tools).invoke({"messages": [("user", QUESTION)]}, config)


@pytest.fixture
def backend() -> Iterator[Decided]:
    one = Decided(engine())
    yield one
    one.close()
    REGISTRY.forget(Scope("towns"))


@pytest.mark.parametrize(
    "recipe",
    [retrieval_chain, expression_language, agent_with_middleware, default_deep_agent],
    ids=lambda r: r.__name__,
)
async def test_the_second_run_reuses_the_documents(recipe: Recipe, backend: Decided) -> None:
    size = sum(len(backend.token_ids(page.page_content)) for page in PAGES)
    sources = {page.metadata["source"] for page in PAGES}
    model = ChatHypic(backend=backend, max_tokens=3, tenant="towns")
    runs = []
    for pages in (PAGES, PAGES[::-1]):
        watch = Watch()
        await recipe(model, Shelf(pages=pages), {"callbacks": [watch]})
        runs.append(watch.messages[-1])
    for at, (_, prompt) in enumerate(backend.asked):
        assert prompt.token_ids == backend.bare_prompt(at).token_ids
    assert joined(PAGES[::-1]) in backend.last_prompt.text
    composed = []
    for message in runs:
        report = message.response_metadata["hypic"]
        documents = [span for span in report["segments"] if span["source_id"] in sources]
        composed.append(sum(span["composed_tokens"] for span in documents))
        assert message.usage_metadata is not None
        details = message.usage_metadata["input_token_details"]
        assert details == {"cache_read": report["reused_tokens"], "cache_creation": report["cold_tokens"]}
        read = sum(span["composed_tokens"] for span in documents if span["state"] == "hit")
        assert (read == 0) if message is runs[0] else (details["cache_read"] >= read >= 0.8 * size)
    assert composed[0] == composed[1]
