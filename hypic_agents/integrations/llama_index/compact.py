"""``HypicCompact``: compact and refine, with nodes that stay whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from llama_index.core import Settings
from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.llms import LLM
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.prompts.prompt_utils import get_biggest_prompt
from llama_index.core.response_synthesizers import CompactAndRefine
from llama_index.core.utils import get_tokenizer

from hypic_agents.integrations.llama_index.llm import HypicLLM

SEPARATOR: Final = "\n\n"
_CHAT_ROOM: Final = 64  # tokens of the chat template, which LlamaIndex does not count


class HypicCompact(CompactAndRefine):
    """Packs as many nodes into a prompt as fit, and never cuts one to fill a prompt up.

    ::

        engine = index.as_query_engine(response_synthesizer=HypicCompact(llm=llm))

    Where all nodes fit into one prompt, it is the prompt of LlamaIndex's "compact" mode, token by token. Where they do
    not, "compact" cuts the joined text wherever a prompt is full, so that the halves of a node are new text whenever
    the order changes; here the next prompt begins with a whole node, which is reused. Only a node that is longer than
    a whole prompt is cut.

    A ``HypicLLM``'s tokens are counted by its own tokenizer.

    Args:
        llm: The model; ``Settings.llm`` by default.
        options: As of ``CompactAndRefine``.
    """

    def __init__(self, llm: LLM | None = None, **options: Any) -> None:
        llm = llm or Settings.llm
        inner = llm.llm if isinstance(llm, StructuredLLM) else llm
        self._tokenizer = inner.tokenizer if isinstance(inner, HypicLLM) else get_tokenizer()
        if isinstance(inner, HypicLLM):
            options.setdefault("response_padding_size", inner.longest_answer + _CHAT_ROOM)
            if options.get("prompt_helper") is None:
                options["prompt_helper"] = PromptHelper.from_llm_metadata(llm.metadata, tokenizer=self._tokenizer)
        super().__init__(llm=llm, **options)

    def _make_compact_text_chunks(self, query_str: str, text_chunks: Sequence[str]) -> list[str]:
        templates = (self._text_qa_template, self._refine_template)
        prompt = get_biggest_prompt([template.partial_format(query_str=query_str) for template in templates])
        splitter = self._prompt_helper.get_text_splitter_given_prompt(
            prompt, padding=self._response_padding_size, llm=self._llm
        )
        return pack(text_chunks, splitter.chunk_size, lambda text: len(self._tokenizer(text)), splitter.split_text)


def pack(
    texts: Iterable[str], size: int, count: Callable[[str], int], split: Callable[[str], Sequence[str]]
) -> list[str]:
    """Texts, stripped and joined by blank lines, in as few pieces of up to ``size`` tokens as their order allows.

    Args:
        texts: Blank ones are left out.
        size: Most tokens of a piece.
        count: Tokens of a text.
        split: Cuts a text that is longer than ``size``; each part is a piece of its own.
    """
    pieces: list[str] = []
    room = 0
    gap = count(SEPARATOR)
    for text in texts:
        bare = text.strip()
        if not bare:
            continue
        needed = count(bare)
        if needed > size:
            pieces += split(bare)
            room = 0
        elif pieces and gap + needed <= room:
            pieces[-1] += SEPARATOR + bare
            room -= gap + needed
        else:
            pieces.append(bare)
            room = size - needed
    return pieces
