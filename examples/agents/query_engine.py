"""Questions over notes with LlamaIndex: a query engine over a vector index, and a chat engine.

Both are LlamaIndex's own; the model object is the only line that is about reuse. The embedding counts words, so that
nothing has to be downloaded.

    pip install 'hypic-agents[llama-index]'
    python examples/agents/query_engine.py                    # the small model that ships with the package
    python examples/agents/query_engine.py --model Qwen/Qwen3.5-4B
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

from llama_index.core import ChatPromptTemplate, VectorStoreIndex
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.schema import TextNode
from meter import Meter, Row, make_parser, show, show_segments
from notes import NOTES, QUESTIONS, SYSTEM

from hypic_agents.integrations.llama_index import HypicLLM

NUM_NOTES = 5
PROMPT = ChatPromptTemplate(
    message_templates=[
        ChatMessage(SYSTEM, role=MessageRole.SYSTEM),
        ChatMessage("{context_str}\n\n{query_str}", role=MessageRole.USER),
    ]
)
_COMMON = frozenset("the is of a an in to by for and what who which how does at on was".split())


class WordEmbedding(BaseEmbedding):
    """Counts of words, hashed into 1,024 places: texts are close that share words."""

    def _get_text_embedding(self, text: str) -> list[float]:
        counts = [0.0] * 1024
        for word in re.findall(r"\w+", text.lower()):
            if word not in _COMMON:
                counts[zlib.crc32(word.encode()) % len(counts)] += 1.0
        return counts

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def main(argv: Sequence[str] | None = None) -> list[Row]:
    parser = make_parser(__doc__)
    parser.add_argument("--questions", type=int, default=len(QUESTIONS), help="how many (default: all)")
    options = parser.parse_args(argv)
    questions = QUESTIONS[: options.questions]

    meter = Meter(options.model, options.threads)
    meter.warm_up()
    llm = HypicLLM(backend=meter, max_tokens=options.max_tokens)
    nodes = [TextNode(id_=name, text=text) for name, text in NOTES.items()]
    index = VectorStoreIndex(nodes, embed_model=WordEmbedding())

    query_engine = index.as_query_engine(llm=llm, similarity_top_k=NUM_NOTES, text_qa_template=PROMPT)
    query_rows = [meter.row(question, str(query_engine.query(question))) for question in questions]
    show("a query engine", query_rows)

    chat_engine = index.as_chat_engine(
        "context",
        llm=llm,
        similarity_top_k=NUM_NOTES,
        system_prompt=SYSTEM,
        memory=ChatMemoryBuffer.from_defaults(token_limit=4000),
    )
    chat_rows = [meter.row(question, str(chat_engine.chat(question))) for question in questions]
    show("a chat engine: the notes stand in its system message, behind them what was said before", chat_rows)
    show_segments(chat_rows[-1].calls[-1])
    meter.close()
    return [*query_rows, *chat_rows]


if __name__ == "__main__":
    main()
