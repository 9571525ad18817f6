"""Nodes keep their borders through LlamaIndex, and never cross scopes."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from pydantic import BaseModel

from hypic_agents.calls import ToolCall
from hypic_agents.core import Scope, Segment
from hypic_agents.integrations.llama_index import HypicLLM
from hypic_agents.integrations.llama_index.hints import FilledMessages, find_segments
from hypic_agents.integrations.llama_index.messages import to_backend
from hypic_agents.integrations.llama_index.nodes import node_segments
from hypic_agents.integrations.llama_index.observe import OBSERVER, REGISTRY
from hypic_agents.testing import FakeBackend

PAGES = [
    NodeWithScore(
        node=TextNode(
            text=f"Page {i} tells of the keeper of gate {i},\nwho came over the bridge.",
            metadata={"source_id": f"p{i}", "year": 1900 + i},
        )
    )
    for i in range(3)
]
SOURCES = ["p0", "p1", "p2"]
dispatcher = get_dispatcher("tests.observe")


class Shelf(BaseRetriever):
    """Gives its pages."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return PAGES


def joined(mode: MetadataMode = MetadataMode.NONE) -> str:
    return "\n\n".join(page.get_content(mode) for page in PAGES)


def sources(backend: FakeBackend) -> list[str]:
    return list(dict.fromkeys(s.source_id for s in backend.requests[-1].segments if s.source_id))


def asked(tenant: str, mode: MetadataMode = MetadataMode.NONE) -> list[str]:
    backend = FakeBackend()
    HypicLLM(backend=backend, tenant=tenant).chat([ChatMessage(joined(mode))])
    return sources(backend)


@pytest.mark.parametrize("mode", ["compact", "refine", "tree_summarize", "simple_summarize"])
@pytest.mark.parametrize("way", ["query", "aquery", "stream", "astream"])
async def test_a_query_engine_s_nodes_are_found_in_every_way_of_calling(mode: str, way: str) -> None:
    backend = FakeBackend()
    llm = HypicLLM(backend=backend, tenant="acme")
    synthesizer = get_response_synthesizer(llm=llm, response_mode=mode, streaming="stream" in way)
    engine = RetrieverQueryEngine(Shelf(), synthesizer)
    answer = await engine.aquery("Who?") if way.startswith("a") else await asyncio.to_thread(engine.query, "Who?")
    if way == "stream":
        list(answer.response_gen)  # type: ignore[union-attr]
    if way == "astream":
        assert [token async for token in answer.response_gen]  # type: ignore[union-attr]
    assert set(SOURCES) <= {s.source_id for request in backend.requests for s in request.segments}
    assert asked("other") == asked("default") == []
    assert OBSERVER.num_open == 0


class Form(BaseModel):
    """An answer."""

    name: str


def test_also_behind_a_structured_model() -> None:
    backend = FakeBackend([ToolCall("Form", {"name": "Besk"})])
    llm = HypicLLM(backend=backend, tenant="acme").as_structured_llm(Form)
    answer = RetrieverQueryEngine.from_args(Shelf(), llm=llm).query("Who?")
    assert answer.response == Form(name="Besk")  # type: ignore[union-attr]
    assert sources(backend) == SOURCES


def test_a_retriever_on_its_own_serves_the_default_scope() -> None:
    Shelf().retrieve("Who?")
    assert asked("default") == SOURCES
    assert asked("acme") == []


@pytest.mark.parametrize("mode", [MetadataMode.NONE, MetadataMode.LLM])
def test_nodes_stay_in_the_scope_of_the_model_that_is_called_around_them(mode: MetadataMode) -> None:
    backend = FakeBackend()
    llm = HypicLLM(backend=backend, tenant="acme")

    @dispatcher.span
    def pipeline() -> None:
        Shelf().retrieve("Who?")
        llm.chat([ChatMessage(joined(mode))])

    pipeline()
    assert sources(backend) == SOURCES
    forms = {segment.text for segment in backend.requests[0].segments}
    assert {page.get_content(mode) for page in PAGES} <= forms
    assert (asked("acme", mode), asked("default", mode)) == (SOURCES, [])


async def test_also_across_the_steps_of_a_workflow() -> None:
    backend = FakeBackend()
    llm = HypicLLM(backend=backend, tenant="acme")

    class Flow(Workflow):
        @step
        async def look(self, _: StartEvent) -> StopEvent:
            await Shelf().aretrieve("Who?")
            response = await llm.achat([ChatMessage(joined())])
            return StopEvent(result=response.message.content)

    assert await Flow().run() == "ok"
    assert sources(backend) == SOURCES
    assert asked("default") == []


def test_events_serve_where_there_is_no_span() -> None:
    HypicLLM(backend=FakeBackend())
    dispatcher.event(RetrievalEndEvent(str_or_query_bundle="Who?", nodes=PAGES))
    assert asked("default") == SOURCES


def test_a_failing_run_leaves_nothing_open() -> None:
    class Broken(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            raise KeyError("broken")

    with pytest.raises(KeyError):
        Broken().retrieve("Who?")
    assert OBSERVER.num_open == 0


def test_observing_can_be_left_out() -> None:
    backend = FakeBackend()
    llm = HypicLLM(backend=backend, tenant="acme", observe=False)

    @dispatcher.span
    def pipeline() -> None:
        Shelf().retrieve("Who?")
        llm.chat([ChatMessage(joined())])

    pipeline()
    assert sources(backend) == []
    RetrieverQueryEngine.from_args(Shelf(), llm=llm).query("Who?")
    assert sources(backend) == []


def test_a_node_s_source_is_its_document() -> None:
    node = TextNode(text="a page", metadata={"version": 3}, id_="n1")
    assert node_segments(node, Scope()) == [
        Segment("version: 3\n\na page", "document", "n1", "3"),
        Segment("a page", "document", "n1", "3"),
    ]
    assert node_segments(TextNode(text=" "), Scope()) == []


def test_long_texts_in_a_template_are_cut_up_to_their_end_and_the_question_never_is() -> None:
    lines = [f"In year {i} the keeper of gate {i * 7} built {i * 3} houses by the river." for i in range(60)]
    context, question = "\n".join(lines), "Who " + "really " * 300 + "came?"
    messages = HypicLLM(backend=FakeBackend())._get_messages(
        PromptTemplate("Context:\n{context_str}\nQuery: {query_str}\nAnswer:"), context_str=context, query_str=question
    )
    assert isinstance(messages, FilledMessages)
    segments = find_segments(messages, to_backend(messages), Scope(), observe=True)
    assert all(segment.text in context for segment in segments)
    assert sum(len(segment.text) for segment in segments) > 0.85 * len(context)
    assert REGISTRY.find(context, Scope()) == []
