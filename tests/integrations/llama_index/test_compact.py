"""Nodes are never cut to fill a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.llms import MockLLM
from llama_index.core.response_synthesizers import CompactAndRefine
from llama_index.core.schema import NodeWithScore, TextNode
from pydantic import BaseModel

from hypic_agents.backend import ModelInfo
from hypic_agents.integrations.llama_index import HypicCompact, HypicLLM
from hypic_agents.integrations.llama_index.compact import SEPARATOR, pack
from hypic_agents.testing import FakeBackend

NODES = [
    NodeWithScore(node=TextNode(text=" ".join(f"n{i}w{j}" for j in range(150)) + "\n", id_=f"n{i}")) for i in range(7)
]


def words(text: str) -> int:
    return len(text.split())


def halves(text: str) -> Sequence[str]:
    parts = text.split()
    return [" ".join(parts[i : i + 10]) for i in range(0, len(parts), 10)]


@given(st.lists(st.integers(0, 25).map(lambda n: " ".join(["w"] * n))), st.integers(10, 30))
def test_pieces_hold_whole_texts_in_order(texts: list[str], size: int) -> None:
    pieces = pack(texts, size, words, halves)
    assert all(words(piece) <= size for piece in pieces)
    assert sum(map(words, pieces)) == sum(map(words, texts))
    if all(words(text) <= size for text in texts):
        assert SEPARATOR.join(pieces) == SEPARATOR.join(text for text in texts if text)
        for first, second in pairwise(pieces):
            assert words(first) + words(second.split(SEPARATOR)[0]) > size  # no piece could take one more


def model(window: int = 8192, **options: Any) -> tuple[HypicLLM, FakeBackend]:
    backend = FakeBackend(["yes"], ModelInfo("fake", "fake", window=window))
    return HypicLLM(backend=backend, **options), backend


def contexts(backend: FakeBackend) -> list[str]:
    return [str(request.messages[-1]["content"]) for request in backend.requests]


def test_where_all_fits_the_prompt_is_that_of_compact() -> None:
    (ours, asked), (theirs, expected) = model(), model()
    HypicCompact(ours).synthesize("Who?", NODES)
    CompactAndRefine(theirs).synthesize("Who?", NODES)
    assert asked.requests[0].messages == expected.requests[0].messages
    assert len(asked.requests) == len(expected.requests) == 1


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_where_it_does_not_each_node_is_whole_in_one_prompt(way: str) -> None:
    llm, backend = model(window=700, max_tokens=8)
    compact = HypicCompact(llm)
    if way == "sync":
        compact.synthesize("Who?", NODES)
    else:
        await compact.asynthesize("Who?", NODES)
    seen = contexts(backend)
    assert 1 < len(seen) < len(NODES)
    for node in NODES:
        assert sum(node.node.get_content().strip() in text for text in seen) == 1
    # LlamaIndex's own cuts nodes here.
    other, cutting = model(window=700, max_tokens=8)
    CompactAndRefine(other, response_padding_size=72).synthesize("Who?", NODES)
    assert not all(any(node.node.get_content().strip() in text for text in contexts(cutting)) for node in NODES)


def test_a_node_that_no_prompt_can_hold_is_cut() -> None:
    llm, backend = model(window=300, max_tokens=8)
    long = TextNode(text=" ".join(f"w{j}" for j in range(400)))
    HypicCompact(llm).synthesize("Who?", [NodeWithScore(node=long)])
    assert len(backend.requests) > 1


def test_behind_a_structured_model_as_well() -> None:
    class Word(BaseModel):
        word: str

    llm, backend = model()
    compact = HypicCompact(llm.as_structured_llm(Word))
    assert compact._tokenizer("one two") == backend.token_ids("one two")


def test_other_models_may_use_it() -> None:
    assert "n0w0" in str(HypicCompact(MockLLM()).synthesize("Who?", NODES[:2]))
