"""Public recipes, unchanged but for the model: a second run with its documents in another order reuses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, TodoListMiddleware
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough
from langchain_core.tools import create_retriever_tool

from hypic_agents.core import Scope
from hypic_agents.integrations.langchain import ChatHypic
from hypic_agents.integrations.langchain.observe import REGISTRY
from tests.integrations.recorder import Recorder
from tests.runtime.models import engine

PAGES = [
    Document(
        f"Gate {i} of the old town\nThe keeper of gate {i} is called {name}. {name} came over the bridge from the east "
        f"and keeps {i + 2} lamps lit at night. Carts pay {i + 4} coins here, riders {i + 1}. In winter the gate opens "
        f"at {i + 6} in the morning and closes at dusk, when {name} rings the small bell above the door.",
        metadata={"source": f"gate-{i}.txt"},
    )
    for i, name in enumerate(["Velmo", "Soldane", "Tarnova", "Besk"], 1)
]
CHAT = ChatPromptTemplate.from_messages([("system", "Answer from what follows.\n\n{context}"), ("human", "{input}")])


class Shelf(BaseRetriever):
    """Gives the pages it holds, in its order."""

    pages: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.pages


@pytest.fixture
def backend() -> Iterator[Recorder]:
    one = Recorder(engine())
    yield one
    one.close()
    REGISTRY.forget(Scope("recipes"))


def model_of(backend: Recorder) -> ChatHypic:
    return ChatHypic(backend=backend, max_tokens=4, tenant="recipes")


def joined(pages: Sequence[Document]) -> str:
    return "\n\n".join(page.page_content for page in pages)


def check(backend: Recorder) -> None:
    """At least 80 % of the last prompt's document tokens were reused, and no hint changed a prompt."""
    for at, (_, prompt) in enumerate(backend.asked):
        assert prompt.token_ids == backend.bare_prompt(at).token_ids
    report = backend.answers[-1].report
    size = sum(len(backend.token_ids(page.page_content)) for page in PAGES)
    known = {page.metadata["source"] for page in PAGES}
    reused = sum(span.composed_tokens for span in report.spans if span.source_id in known and span.state == "hit")
    assert reused >= 0.8 * size
    usage = backend.answers[-1].usage
    assert usage.cached_tokens >= reused


def test_retrieval_chain(backend: Recorder) -> None:
    stuff = create_stuff_documents_chain(model_of(backend), CHAT)
    for pages in (PAGES, PAGES[::-1]):
        create_retrieval_chain(Shelf(pages=pages), stuff).invoke({"input": "Who keeps gate 2?"})
    check(backend)


def test_stuffing_with_a_header_before_each_document(backend: Recorder) -> None:
    header = PromptTemplate.from_template("From {source}:\n{page_content}")
    chat = ChatPromptTemplate.from_messages([("system", "Answer from the notes."), ("human", "{context}\n\n{input}")])
    stuff = create_stuff_documents_chain(model_of(backend), chat, document_prompt=header, document_separator="\n---\n")
    for pages in (PAGES, PAGES[2:] + PAGES[:2]):
        stuff.invoke({"context": pages, "input": "Who keeps gate 2?"})
    check(backend)


def test_expression_language(backend: Recorder) -> None:
    for pages in (PAGES, PAGES[::-1]):
        context = Shelf(pages=pages) | joined
        chain = {"context": context, "input": RunnablePassthrough()} | CHAT | model_of(backend) | StrOutputParser()
        assert isinstance(chain.invoke("Who keeps gate 2?"), str)
    check(backend)


def turns(pages: Sequence[Document], question: str) -> list[BaseMessage]:
    """A conversation in which the agent has just called its retriever."""
    call = {"name": "gates", "args": {"query": question}, "id": "c1"}
    return [
        HumanMessage(question),
        AIMessage("", tool_calls=[call]),
        ToolMessage(joined(pages), tool_call_id="c1", name="gates", artifact=list(pages)),
    ]


def test_agent_with_middleware(backend: Recorder) -> None:
    model = model_of(backend)
    tools = [create_retriever_tool(Shelf(pages=PAGES), "gates", "Find notes on the gates.")]
    middleware = [TodoListMiddleware(), SummarizationMiddleware(model, trigger=("fraction", 0.8))]
    agent = create_agent(model, tools, system_prompt="You know the old town.", middleware=middleware)
    for pages in (PAGES, PAGES[::-1]):
        agent.invoke({"messages": turns(pages, "Who keeps gate 2?")})
    check(backend)


def test_default_deep_agent(backend: Recorder) -> None:
    tools = [create_retriever_tool(Shelf(pages=PAGES), "gates", "Find notes on the gates.")]
    agent = create_deep_agent(model_of(backend), tools)
    for pages in (PAGES, PAGES[::-1]):
        agent.invoke({"messages": turns(pages, "Who keeps gate 2?")})
    check(backend)
