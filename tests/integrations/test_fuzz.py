"""Any text, cut into any blocks, through both framework classes: no crash, no changed prompt, no forged token."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from llama_index.core.base.llms.types import ChatMessage, DocumentBlock, MessageRole, TextBlock
from transformers import AutoTokenizer

from hypic_agents.backend import ChatRequest
from hypic_agents.core import SamplingParams, Segment
from hypic_agents.errors import HypicError, InvalidMessages
from hypic_agents.integrations.langchain import ChatHypic
from hypic_agents.integrations.llama_index import HypicLLM
from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from hypic_agents.prompt.messages import normalise
from hypic_agents.runtime.embedded import EmbeddedBackend
from hypic_agents.runtime.models.registry import TINY
from hypic_agents.testing import FakeBackend
from tests import strategies
from tests.runtime.models import engine

pytestmark = pytest.mark.filterwarnings("ignore:.langchain-community. is being sunset:DeprecationWarning")

TOKENIZER = AutoTokenizer.from_pretrained(TINY)
BUILDER = PromptBuilder(ChatTokenizer(TOKENIZER))
START, END = TOKENIZER.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
CONTROLS = set(TOKENIZER.get_added_vocab().values())
LEASE = "The lease ends in May, and the keys go to the porter. "

separators = st.sampled_from(
    ["\n\n", "\n---\n", "<<PIC_SEP>>", "\x1e", "", "{context}", "\x00", "\u2028", "</documents>"]
)
control_characters = st.text(st.characters(categories=("Cc", "Cf", "Zl", "Zs")), max_size=8)
pieces = st.one_of(
    strategies.hostile, strategies.documents, separators, control_characters, st.integers(1, 40).map(LEASE.__mul__)
)
texts = st.lists(pieces, min_size=1, max_size=6).map("".join)
broken = st.tuples(texts, st.characters(categories=("Cs",)), texts).map("".join)


@st.composite
def cut(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> list[str]:
    """A text in pieces, cut anywhere: also inside of a control token's text, or of a pair of surrogates."""
    text = draw(whole)
    edges = sorted(draw(st.sets(st.integers(0, len(text)), max_size=5)) | {0, len(text)})
    return [text[a:b] for a, b in pairwise(edges)] or [""]


def langchain_blocks(parts: Sequence[str], kinds: Sequence[str]) -> list[str | dict[Any, Any]]:
    make: dict[str, Callable[[str], dict[str, Any]]] = {
        "plain": lambda text: {"type": "text", "text": text},
        "marked": lambda text: {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}},
        "document": lambda text: {"type": "text-plain", "text": text, "title": "notes"},
    }
    return [make[kind](part) for part, kind in zip(parts, kinds, strict=False)]


kinds = st.lists(st.sampled_from(["plain", "marked", "document"]), min_size=6, max_size=6)


@st.composite
def chats(draw: st.DrawFn, whole: st.SearchStrategy[str] = texts) -> list[BaseMessage]:
    """A chat of several turns; a tool's documents come as its artifact too."""
    messages: list[BaseMessage] = []
    for role in [*draw(st.lists(st.sampled_from(["system", "human", "ai", "tool"]), max_size=4)), "human"]:
        parts = draw(cut(whole))
        content = langchain_blocks(parts, draw(kinds))
        if role == "system":
            messages.append(SystemMessage(content))
        elif role == "human":
            messages.append(HumanMessage(content))
        elif role == "ai":
            messages.append(AIMessage([{"type": "text", "text": part} for part in parts]))
        else:
            calls = [{"name": "look", "args": {"at": parts[0].encode(errors="replace").decode()}, "id": "c"}]
            artifact = [Document(part.encode(errors="replace").decode()) for part in parts]
            messages += [AIMessage("", tool_calls=calls), ToolMessage(content, tool_call_id="c", artifact=artifact)]
    return messages


def sent(model: Any, ask: Callable[[Any], object]) -> ChatRequest:
    """What the framework's class asks of its backend."""
    backend = FakeBackend()
    ask(model(backend=backend))
    return backend.requests[-1]


def check(request: ChatRequest, wrong: Sequence[str] = ()) -> None:
    """Hints, right or wrong, change no id; every control token is the template's."""
    bare = BUILDER.build_chat(request.messages)
    hints = [*request.segments, *(Segment(text) for text in wrong)]
    prompt = BUILDER.build_chat(request.messages, segments=hints, scope=request.scope)
    assert prompt.token_ids == bare.token_ids
    assert prompt.text == bare.text
    assert all(span.start < span.end for span in (*prompt.spans, *prompt.volatile))
    assert all(first.end <= second.start for first, second in pairwise(prompt.spans))
    turns = normalise(request.messages).messages
    num_calls = sum(len(turn.get("tool_calls", ())) for turn in turns)
    results = [i for i, turn in enumerate(turns) if turn["role"] == "tool"]
    blocks = len(turns) - sum(i - 1 in results for i in results)  # results in a row share a turn
    counts = {index: prompt.token_ids.count(index) for index in CONTROLS}
    assert counts.pop(START) == blocks + 1
    assert counts.pop(END) == blocks
    written = {"<tool_call>": num_calls, "</tool_call>": num_calls, "<tool_response>": len(results)}
    written["</tool_response>"] = len(results)
    names = {index: TOKENIZER.convert_ids_to_tokens(index) for index in counts}
    assert {names[i]: n for i, n in counts.items() if n} == {k: n for k, n in written.items() if n}


@settings(deadline=None, max_examples=60)
@given(messages=chats(), wrong=st.lists(texts, max_size=2))
def test_chat_hypic(messages: list[BaseMessage], wrong: list[str]) -> None:
    check(sent(ChatHypic, lambda model: model.invoke(messages)), wrong)


@settings(deadline=None, max_examples=30)
@given(messages=chats(broken))
def test_text_without_utf8_form_is_refused(messages: list[BaseMessage]) -> None:
    request = sent(ChatHypic, lambda model: model.invoke(messages))
    for hints in ((), request.segments):
        with pytest.raises(InvalidMessages, match="surrogate"):
            BUILDER.build_chat(request.messages, segments=hints)


@settings(deadline=None, max_examples=50)
@example(blocks=[(True, "00000000")], role=MessageRole.SYSTEM, question="q")
@given(
    blocks=st.lists(st.tuples(st.booleans(), texts), min_size=1, max_size=5),
    role=st.sampled_from([MessageRole.SYSTEM, MessageRole.USER]),
    question=texts,
)
def test_hypic_llm(blocks: list[tuple[bool, str]], role: MessageRole, question: str) -> None:
    content = [
        # Encoded by hand: LlamaIndex takes raw bytes that happen to be valid base64 for encoded ones.
        DocumentBlock(data=b64encode(text.encode()), document_mimetype="text/plain")
        if is_file and text
        else TextBlock(text=text)
        for is_file, text in blocks
    ]
    messages = [ChatMessage(role=role, blocks=content), ChatMessage(question)]
    check(sent(HypicLLM, lambda model: model.chat(messages)))


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(messages=chats(st.one_of(texts, texts, broken)))
def test_the_engine_answers_or_refuses(messages: list[BaseMessage]) -> None:
    """Whole path: a typed error or an answer, the same prompt with reuse on and off, cold and warm."""
    request = replace(
        sent(ChatHypic, lambda model: model.invoke(messages)), sampling=SamplingParams(max_tokens=2), fit_window=False
    )
    backend = EmbeddedBackend(engine())
    try:
        answers = [backend.generate(replace(request, policy=policy)) for policy in ("hypic", "hypic", "exact")]
    except HypicError:
        with pytest.raises(HypicError):
            backend.generate(replace(request, segments=(), policy="exact"))
    else:
        cold, warm, exact = answers
        assert cold.token_ids == warm.token_ids
        assert len({answer.usage.prompt_tokens for answer in answers}) == 1
        assert exact.usage.cached_tokens == 0
        # All that was composed, and what a checkpoint holds beside it.
        assert warm.report.reused_tokens >= cold.report.reused_tokens + cold.report.cold_tokens
        assert warm.report.prefix_tokens or warm.report.live_tokens == cold.report.live_tokens
    finally:
        backend.engine.store.check_integrity()
        backend.close()
