"""Questions over notes with LangChain: a retrieval chain, and an agent that calls a retriever.

Both are written as for any other chat model; the model object is the only line that is about reuse. Each question
retrieves other notes in another order, and every note is computed once.

The bundled ``tiny`` has one million parameters: it reads notes, but cannot be relied on to look for them. With ``--plan
script``, its default, the agent's first call of a question is a real call of the model that is held to the retriever,
the question takes the place of the query it wrote, and what was found is put before the question. With ``--plan
model``, the default of any other model, it decides alone.

    pip install 'hypic-agents[langchain]' langchain langchain-classic bm25s
    python examples/agents/rag_chat.py                        # the small model that ships with the package
    python examples/agents/rag_chat.py --model Qwen/Qwen3.5-4B
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import bm25s
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, ModelResponse, wrap_model_call
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import create_retriever_tool
from meter import Meter, Row, add_plan, is_scripted, make_parser, show, show_segments
from notes import NOTES, QUESTIONS, SYSTEM
from pydantic import PrivateAttr

from hypic_agents.integrations.langchain import ChatHypic

PROMPT = ChatPromptTemplate.from_messages([("system", SYSTEM), ("human", "{context}\n\n{input}")])


class Bm25Retriever(BaseRetriever):
    """The ``k`` documents that share the rarest words with the query."""

    documents: list[Document]
    k: int = 5
    _index: bm25s.BM25 = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._index = bm25s.BM25()
        self._index.index(_words([document.page_content for document in self.documents]), show_progress=False)

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:  # noqa: ARG002  LangChain passes it
        found, _ = self._index.retrieve(_words([query]), k=self.k, show_progress=False)
        return [self.documents[int(number)] for number in found[0]]


def _words(texts: Sequence[str]) -> Any:
    return bm25s.tokenize(list(texts), stopwords="en", show_progress=False)


@wrap_model_call
def look_first(request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]) -> ModelResponse | AIMessage:
    """The script: look the question up, then answer it behind what was found."""
    question = str(request.messages[0].text)
    found = next((message for message in request.messages if isinstance(message, ToolMessage)), None)
    if found is not None:
        return handler(request.override(messages=[HumanMessage(f"{found.text}\n\n{question}")], tools=[]))
    asked = handler(request.override(tool_choice="search_notes")).result[0]
    call = {"name": "search_notes", "args": {"query": question}, "id": f"call_{asked.id}"}
    return AIMessage("", tool_calls=[call], response_metadata=asked.response_metadata)


def ask_chain(model: ChatHypic, retriever: BaseRetriever, meter: Meter, questions: Sequence[str]) -> list[Row]:
    chain = create_retrieval_chain(retriever, create_stuff_documents_chain(model, PROMPT))
    return [meter.row(question, chain.invoke({"input": question})["answer"]) for question in questions]


def ask_agent(
    model: ChatHypic, retriever: BaseRetriever, meter: Meter, questions: Sequence[str], *, scripted: bool
) -> list[Row]:
    tool = create_retriever_tool(retriever, "search_notes", "Look up the notes: people, cities, companies.")
    agent = create_agent(model, [tool], system_prompt=SYSTEM, middleware=[look_first] if scripted else [])
    rows = []
    for question in questions:
        messages = agent.invoke({"messages": [("user", question)]})["messages"]
        rows.append(meter.row(question, str(messages[-1].text)))
    return rows


def main(argv: Sequence[str] | None = None) -> list[Row]:
    parser = make_parser(__doc__)
    parser.add_argument("--questions", type=int, default=len(QUESTIONS), help="how many (default: all)")
    add_plan(parser)
    options = parser.parse_args(argv)
    questions = QUESTIONS[: options.questions]

    meter = Meter(options.model, options.threads)
    meter.warm_up()
    model = ChatHypic(backend=meter, max_tokens=options.max_tokens)
    retriever = Bm25Retriever(documents=[Document(text, metadata={"source": name}) for name, text in NOTES.items()])

    chain_rows = ask_chain(model, retriever, meter, questions)
    show("a retrieval chain", chain_rows)
    scripted = is_scripted(options)
    agent_rows = ask_agent(model, retriever, meter, questions, scripted=scripted)
    show(f"an agent with a retriever; steps by {'a script' if scripted else 'the model'}", agent_rows)
    show_segments(agent_rows[-1].calls[-1])
    meter.close()
    return [*chain_rows, *agent_rows]


if __name__ == "__main__":
    main()
