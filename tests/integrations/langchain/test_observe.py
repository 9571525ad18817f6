"""Documents keep their borders through chains, and never cross scopes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough

from hypic_agents.core import Scope
from hypic_agents.integrations.langchain import ChatHypic
from hypic_agents.integrations.langchain.observe import OBSERVER, REGISTRY
from hypic_agents.testing import FakeBackend

PAGES = [
    Document(f"Page {i} tells of the keeper of gate {i}, who came over the bridge.", metadata={"source": f"p{i}"})
    for i in range(3)
]
PROMPT = ChatPromptTemplate.from_messages([("system", "Use this:\n{context}"), ("human", "{input}")])


class Shelf(BaseRetriever):
    """Gives the pages it holds."""

    pages: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.pages


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    for scope in (Scope(), Scope("acme")):
        REGISTRY.forget(scope)


def joined(pages: list[Document]) -> str:
    return "\n\n".join(page.page_content for page in pages)


def chain(model: BaseChatModel, pages: list[Document]) -> Runnable[str, AIMessage]:
    return {"context": Shelf(pages=pages) | joined, "input": RunnablePassthrough()} | PROMPT | model


def sources(backend: FakeBackend) -> list[str]:
    return [segment.source_id for segment in backend.requests[-1].segments if segment.source_id]


def test_a_chain_s_documents_are_found_in_every_way_of_calling() -> None:
    backend = FakeBackend()
    rag = chain(ChatHypic(backend=backend, tenant="acme"), PAGES)
    rag.invoke("Who?")
    assert sources(backend) == ["p0", "p1", "p2"]
    REGISTRY.forget(Scope("acme"))
    list(rag.stream("Who?"))
    assert sources(backend) == ["p0", "p1", "p2"]


async def test_also_on_an_event_loop() -> None:
    backend = FakeBackend()
    rag = chain(ChatHypic(backend=backend, tenant="acme"), PAGES[:2])
    await rag.ainvoke("Who?")
    assert sources(backend) == ["p0", "p1"]
    REGISTRY.forget(Scope("acme"))
    async for _ in rag.astream("Who?"):
        pass
    assert sources(backend) == ["p0", "p1"]


def test_documents_stay_in_the_scope_that_asked_for_them() -> None:
    backend = FakeBackend()
    chain(ChatHypic(backend=backend, tenant="acme"), PAGES).invoke("Who?")
    for tenant, expected in (("acme", ["p0", "p1", "p2"]), ("other", []), ("default", [])):
        ChatHypic(backend=backend, tenant=tenant).invoke([HumanMessage(joined(PAGES))])
        assert sources(backend) == expected


def test_a_retriever_on_its_own_serves_the_default_scope() -> None:
    backend = FakeBackend()
    Shelf(pages=PAGES).invoke("Who?")
    for tenant, expected in (("default", ["p0", "p1", "p2"]), ("acme", [])):
        ChatHypic(backend=backend, tenant=tenant).invoke([HumanMessage(joined(PAGES))])
        assert sources(backend) == expected


def test_documents_handed_to_a_chain_are_seen() -> None:
    backend = FakeBackend()
    model = ChatHypic(backend=backend, tenant="acme")
    stuff = RunnableLambda(lambda given: joined(given["context"])) | model
    stuff.invoke({"context": PAGES, "input": "Who?"})
    assert sources(backend) == ["p0", "p1", "p2"]


def test_tools_documents_and_documents_in_messages_are_seen() -> None:
    backend = FakeBackend()
    call = {"name": "find", "args": {}, "id": "c1"}
    block = {"type": "text-plain", "text": "A page in a block, with enough text to count.", "title": "block"}
    marked = {
        "type": "text",
        "text": "A part that its author marked as stable.",
        "cache_control": {"type": "ephemeral"},
    }
    ChatHypic(backend=backend, tenant="acme").invoke(
        [
            HumanMessage([block, marked, {"type": "text", "text": "Who?"}]),
            AIMessage("", tool_calls=[call]),
            ToolMessage(joined(PAGES), tool_call_id="c1", artifact=PAGES),
        ]
    )
    assert sources(backend) == ["block", "p0", "p1", "p2"]
    assert marked["text"] in [segment.text for segment in backend.requests[-1].segments]


def test_a_model_may_not_want_to_know() -> None:
    backend = FakeBackend()
    chain(ChatHypic(backend=backend, tenant="acme", observe=False), PAGES).invoke("Who?")
    assert sources(backend) == []


def test_failing_runs_leave_nothing_behind() -> None:
    def fail(_: str) -> str:
        raise KeyError("broken")

    with pytest.raises(KeyError):
        (Shelf(pages=PAGES) | RunnableLambda(fail)).invoke("Who?")  # type: ignore[arg-type]
    assert OBSERVER.num_open == 0
