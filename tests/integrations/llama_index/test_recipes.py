"""LlamaIndex's own recipes, unchanged, run twice: the second time with the documents in another order."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.core.tools import RetrieverTool
from llama_index.retrievers.bm25 import BM25Retriever

from hypic_agents.integrations.llama_index import HypicLLM
from hypic_agents.prompt.registry import spellings
from tests.integrations.recorder import Recorder

pytestmark = [
    # LlamaIndex imports it to see whether an embedding is one of LangChain's.
    pytest.mark.filterwarnings("ignore:.langchain-community. is being sunset:DeprecationWarning"),
    # LlamaIndex's workflows look at all attributes of an agent, deprecated ones too.
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    # LlamaIndex's agents ask it where they end early.
    pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning"),
]

PLACES = "Besk Orlo Tamwick Velden Quarrow Ishmere Dorn Lusk Ambry Kest Wenlo Farsk Tirn Osmer".split()
PAGES = [
    f"The town of {place} lies on the river.\nIts keeper says: 'No boat of {place} has more than {i + 3} oars.' "
    + " ".join(f"In year {7 * n + i} the people of {place} built {n + 2} houses by gate {n * i + 1}." for n in range(8))
    for i, place in enumerate(PLACES)
]
QUESTION = "How many oars has a boat of Velden?"


class Shelf(BaseRetriever):
    """Gives its nodes in its own order."""

    def __init__(self, nodes: list[BaseNode]) -> None:
        self._nodes = nodes
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=node, score=1.0) for node in self._nodes]


@pytest.fixture(scope="module")
def all_nodes() -> list[BaseNode]:
    documents = [Document(text=page, metadata={"file": f"{i}.txt"}, doc_id=f"doc{i}") for i, page in enumerate(PAGES)]
    cut: list[BaseNode] = SentenceSplitter(chunk_size=1024).get_nodes_from_documents(documents)
    return cut


@pytest.fixture
def nodes(all_nodes: list[BaseNode]) -> list[BaseNode]:
    return all_nodes[:6]


@pytest.fixture
def llm(tiny: Recorder) -> HypicLLM:
    tiny.asked.clear()
    tiny.invalidate(tenant="acme")
    return HypicLLM(backend=tiny, tenant="acme", max_tokens=12)


def check(tiny: Recorder, responses: list[ChatResponse], num_first: int) -> None:
    """Prompts are what they are without reuse, and the second run computed at most a fifth of the documents."""
    builder, tokenizer = tiny.engine.builder, tiny.engine.tokenizer
    assert len(responses) == len(tiny.asked)
    total = reused = 0
    for (request, prompt), response in zip(tiny.asked, responses, strict=True):
        assert prompt.token_ids == builder.build_chat(request.messages, tools=request.shown_tools).token_ids
        usage, report = response.raw["usage"], response.raw["hypic"]
        assert usage["prompt_tokens"] == len(prompt)
        assert usage["prompt_tokens_details"]["cached_tokens"] == report["reused_tokens"]
    for (_, prompt), response in list(zip(tiny.asked, responses, strict=True))[num_first:]:
        segments = response.raw["hypic"]["segments"]
        reused += sum(s["composed_tokens"] for s in segments if s["kind"] == "document" and s["state"] == "hit")
        for page in PAGES:
            total += max(prompt.text.count(form) * len(tokenizer.encode_text(form)) for form in spellings(page))
    assert total > 500
    assert reused >= 0.8 * total


@pytest.mark.parametrize("mode", ["compact", "tree_summarize", "simple_summarize"])
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_query_engines(
    mode: str, way: str, tiny: Recorder, llm: HypicLLM, nodes: list[BaseNode], heard: list[ChatResponse]
) -> None:
    num_first = 0
    for order in (nodes, nodes[::-1]):
        num_first = len(heard)
        engine = RetrieverQueryEngine(Shelf(order), get_response_synthesizer(llm=llm, response_mode=mode))
        answer = engine.query(QUESTION) if way == "sync" else await engine.aquery(QUESTION)
        assert len(answer.source_nodes) == len(nodes)
    check(tiny, heard, num_first)


@pytest.mark.slow
def test_refine(tiny: Recorder, llm: HypicLLM, all_nodes: list[BaseNode], heard: list[ChatResponse]) -> None:
    # The first prompt has a system message and the others have none, and entries are kept for each system message: the
    # nodes that come first and last in turn are built twice, however many there are.
    for order in (all_nodes, all_nodes[::-1]):
        RetrieverQueryEngine(Shelf(order), get_response_synthesizer(llm=llm, response_mode="refine")).query(QUESTION)
    assert len(heard) == 2 * len(PAGES)
    check(tiny, heard, len(PAGES))


def test_a_vector_index_and_a_keyword_index(
    tiny: Recorder, llm: HypicLLM, nodes: list[BaseNode], heard: list[ChatResponse]
) -> None:
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))
    index.as_query_engine(llm=llm, similarity_top_k=6).query(QUESTION)
    words = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=6)
    RetrieverQueryEngine.from_args(words, llm=llm).query("What of Ishmere and Quarrow?")
    first, second = (request.messages for request, _ in tiny.asked)
    assert first != second
    check(tiny, heard, 1)


def test_a_streaming_query_engine(tiny: Recorder, llm: HypicLLM, nodes: list[BaseNode], heard: list[Any]) -> None:
    for order in (nodes, nodes[::-1]):
        engine = RetrieverQueryEngine(Shelf(order), get_response_synthesizer(llm=llm, streaming=True))
        "".join(engine.query(QUESTION).response_gen)  # type: ignore[union-attr]
    check(tiny, heard, 1)


async def test_a_context_chat_engine(
    tiny: Recorder, llm: HypicLLM, nodes: list[BaseNode], heard: list[ChatResponse]
) -> None:
    shelf = Shelf(nodes)
    chat = ContextChatEngine.from_defaults(
        shelf, llm=llm, system_prompt="Answer in one word.", memory=ChatMemoryBuffer.from_defaults()
    )
    await chat.achat(QUESTION)
    shelf._nodes = nodes[::-1]
    await chat.achat("And one of Besk?")
    check(tiny, heard, 1)


async def test_a_function_agent(
    tiny: Recorder, llm: HypicLLM, nodes: list[BaseNode], heard: list[ChatResponse]
) -> None:
    llm.max_tokens = 64
    num_first = 0
    for order in (nodes, nodes[::-1]):
        num_first = len(heard)
        tool = RetrieverTool.from_defaults(Shelf(order), name="search", description="Looks up towns.")
        agent = FunctionAgent(tools=[tool], llm=llm, initial_tool_choice="search")
        await agent.run(
            QUESTION, memory=ChatMemoryBuffer.from_defaults(), max_iterations=2, early_stopping_method="generate"
        )
        assert tiny.asked[num_first][0].tool_choice == "search"
        assert tiny.asked[num_first + 1][0].messages[-1]["role"] == "tool"
    check(tiny, heard, num_first)
