"""Inputs from public bug reports that broke such systems, through the chat model and the embedded engine.

Each line of ``cases.jsonl`` is one test here: ``test_`` and its id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core import exceptions
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from llama_index.core.base.llms.types import ChatMessage
from transformers import AutoTokenizer

from hypic_agents.backend import ChatRequest
from hypic_agents.core import SamplingParams
from hypic_agents.errors import ContextOverflow, InvalidMessages
from hypic_agents.integrations.langchain import ChatHypic
from hypic_agents.integrations.llama_index import HypicLLM
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.models.random_init import random_model
from hypic_agents.runtime.models.registry import TINY, wrap
from tests.integrations.recorder import Recorder
from tests.prompt.tokenizers_for_tests import STRICT
from tests.runtime.models import engine, hybrid

Case = dict[str, Any]

LINES = Path(__file__).with_name("cases.jsonl").read_text("utf-8").splitlines()
CASES: dict[str, Case] = {case["id"]: case["input"] for case in map(json.loads, LINES)}
STUFF = ChatPromptTemplate.from_messages([("human", "{context}\n\n{input}")])


def engine_with(template: str | None = None, **config: Any) -> Engine:
    """A random model with the bundled tokenizer and another chat template, or another configuration."""
    tokenizer = ChatTokenizer(AutoTokenizer.from_pretrained(TINY), chat_template=template)
    model = wrap(random_model("random:qwen3_5:2m", **config)) if config else hybrid("qwen3_5")
    return Engine(model, tokenizer, str(config), EngineConfig(), name="random")


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.function.__name__.removeprefix("test_").replace("_", "-")]


@pytest.fixture
def backend() -> Iterator[Recorder]:
    one = Recorder(engine())
    yield one
    one.engine.store.check_integrity()
    one.close()


@pytest.fixture
def strict() -> Iterator[Recorder]:
    """With a template that trims contents, and refuses system messages late and two turns of one role in a row."""
    one = Recorder(engine_with(STRICT))
    yield one
    one.close()


def model_of(backend: Recorder) -> ChatHypic:
    return ChatHypic(backend=backend, max_tokens=2)


def segments(answer: BaseMessage, kind: str = "document") -> list[dict[str, Any]]:
    return [s for s in answer.response_metadata["hypic"]["segments"] if s["kind"] == kind]


def states(answer: BaseMessage, kind: str = "document") -> list[str]:
    return [segment["state"] for segment in segments(answer, kind)]


def chat(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """A case's messages in OpenAI's shape."""
    turns = [m if isinstance(m, dict) else {"role": m[0], "content": m[1]} for m in messages]
    return [
        turn | {"tool_calls": [call(c) for c in turn["tool_calls"]]} if "tool_calls" in turn else turn for turn in turns
    ]


def call(given: dict[str, Any]) -> dict[str, Any]:
    arguments = given["arguments"] if isinstance(given["arguments"], str) else json.dumps(given["arguments"])
    return {"id": given["id"], "type": "function", "function": {"name": given["name"], "arguments": arguments}}


def stuff(backend: Recorder, texts: Sequence[str], question: str = "What does it say?") -> dict[str, Any]:
    """Ask over documents through a stuff chain; the reuse report, and the prompt's ids are those without hints."""
    documents = [Document(text, metadata={"source": f"{i}.txt"}) for i, text in enumerate(texts)]
    create_stuff_documents_chain(model_of(backend), STUFF).invoke({"context": documents, "input": question})
    assert backend.last_prompt.token_ids == backend.bare_prompt().token_ids
    return {span.source_id: span for span in backend.answers[-1].report.spans}


def test_every_case_is_tested() -> None:
    tests = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert set(CASES) == tests - {"every-case-is-tested"}
    assert len(CASES) == len(LINES)


def test_tools_reordered(backend: Recorder, case: Case) -> None:
    first, second = (model_of(backend).bind_tools(case[tools]).invoke("q") for tools in ("tools_a", "tools_b"))
    assert [s["source_id"] for s in segments(first, "tool")] == ["beta", "alpha", "gamma"]
    assert [s["source_id"] for s in segments(second, "tool")] == ["alpha", "beta", "gamma"]
    assert states(first, "tool") == ["cold"] * 3
    assert states(second, "tool") == ["hit"] * 3


def test_schema_keys_permuted(backend: Recorder, case: Case) -> None:
    first, second = (model_of(backend).bind_tools([case[tool]]).invoke("q") for tool in ("tool_a", "tool_b"))
    assert backend.asked[0][1].token_ids == backend.asked[1][1].token_ids
    assert states(first, "tool") == ["cold"]
    assert states(second, "tool") == ["hit"]


def test_clock_in_system_prompt(backend: Recorder, case: Case) -> None:
    first, second = (
        model_of(backend).invoke([SystemMessage(case[system]), HumanMessage("q")])
        for system in ("system_a", "system_b")
    )
    assert states(first, "system") == ["cold"]
    assert states(second, "system") == ["hit"]
    (rest,) = segments(second, "system")
    assert rest["composed_tokens"] > 0.9 * second.usage_metadata["input_tokens"]
    clock, _, rules = case["system_b"].partition("\n")
    (span,) = backend.last_prompt.spans
    assert span.segment.text == rules.strip()
    (volatile,) = second.response_metadata["hypic"]["volatile"]
    assert (volatile["text"], volatile["reason"]) == (clock, "states the date or time")
    assert 0 < volatile["start"] < volatile["end"] <= rest["start"]
    llm = HypicLLM(backend=backend, max_tokens=2)
    told = llm.chat([ChatMessage(case["system_b"], role="system"), ChatMessage("q")])
    assert told.raw["hypic"]["volatile"] == [volatile]


def test_special_tokens_in_document(backend: Recorder, case: Case) -> None:
    (document,) = case["documents"]
    assert stuff(backend, [document], case["question"])["0.txt"].kind == "document"
    start, end = AutoTokenizer.from_pretrained(TINY).convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert [i for i in backend.last_prompt.token_ids if i in {start, end}] == [start, end, start]
    assert document in backend.engine.tokenizer.decode(backend.last_prompt.token_ids)


def test_system_message_late(backend: Recorder, strict: Recorder, case: Case) -> None:
    for one in (backend, strict):
        assert model_of(one).invoke(chat(case["messages"])).usage_metadata["output_tokens"]
        assert "user\nbe brief\n\nwho are you?<|im_end|>" in one.last_prompt.text


def test_two_user_messages(backend: Recorder, strict: Recorder, case: Case) -> None:
    turns = [
        HumanMessage([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}])
        for _, text in case["messages"]
    ]
    for one in (backend, strict):
        answer = model_of(one).invoke(turns)
        assert "user\nfirst part\n\nsecond part<|im_end|>" in one.last_prompt.text
        assert [span.segment.text for span in one.last_prompt.spans] == ["first part", "second part"]
        assert all(segment["reason"] for segment in segments(answer))  # too short to be reused, and said so


def test_tool_arguments_string_or_dict(backend: Recorder, strict: Recorder, case: Case) -> None:
    question, asked, result = case["messages"]
    parsed = dict(asked, tool_calls=[dict(asked["tool_calls"][0], arguments={"city": "Oslo"})])
    for one in (backend, strict):
        model_of(one).invoke(chat(case["messages"]))
        for form in (asked, parsed):
            turns = [{"role": question[0], "content": question[1]}, form, result]
            one.generate(ChatRequest(turns, sampling=SamplingParams(max_tokens=1)))
        prompts = [prompt.token_ids for _, prompt in one.asked]
        assert prompts == [prompts[0]] * 3
        assert '{"city": "Oslo"}' in one.last_prompt.text


def test_tool_call_without_text(backend: Recorder, strict: Recorder, case: Case) -> None:
    for one in (backend, strict):
        model_of(one).invoke(chat(case["messages"]))
        assert "None" not in one.last_prompt.text
        assert "done" in one.last_prompt.text


def test_image_in_tool_result(backend: Recorder, case: Case) -> None:
    with pytest.raises(InvalidMessages, match=r"message 2 \(tool\).*'image_url'") as caught:
        model_of(backend).invoke(chat(case["messages"]))
    assert isinstance(caught.value, exceptions.ModelInvalidRequestError)
    assert backend.answers == []


def test_parallel_results_out_of_order(backend: Recorder, case: Case) -> None:
    calls = [{"name": "go", "args": {"to": name}, "id": name} for name in case["tool_calls"]]
    front: list[BaseMessage] = [HumanMessage("go"), AIMessage("", tool_calls=calls)]
    for order in (case["tool_calls"], case["results_order"]):
        model_of(backend).invoke([*front, *(ToolMessage(f"result of {name}", tool_call_id=name) for name in order)])
    first, second = (prompt for _, prompt in backend.asked)
    assert first == second
    assert first.text.index("result of c0") < first.text.index("result of c1")


def test_empty_page_content(backend: Recorder, case: Case) -> None:
    texts = [text for text in case["documents"] if text is not None]
    lease = "The lease ends in May, and the keys go to the porter at the gate of the old town."
    assert list(stuff(backend, [lease, *texts])) == ["0.txt"]
    assert lease + "\n\n".join(["", *texts]) in backend.last_prompt.text  # the separators stay
    with pytest.raises(InvalidMessages, match="'text-plain'"):
        model_of(backend).invoke([HumanMessage([{"type": "text-plain", "text": None}])])


def test_same_chunk_twice(backend: Recorder, case: Case) -> None:
    documents = [Document(text, metadata={"source": "lease"}) for text in case["documents"]]
    chain = create_stuff_documents_chain(model_of(backend), STUFF)
    for _ in range(2):
        chain.invoke({"context": documents, "input": "When?"})
        assert len(backend.last_prompt.spans) == 2
        assert backend.engine.stats().entries == 1
        backend.engine.store.check_integrity()
    first, second = (answer.report for answer in backend.answers)
    assert [span.state for span in second.spans] == ["hit", "hit"]
    # The second prompt is the first one again: its checkpoint holds what stands between the parts too.
    assert second.reused_tokens == second.prefix_tokens > first.reused_tokens + first.cold_tokens


def test_crlf_and_bom(backend: Recorder, case: Case) -> None:
    blocks = [{"type": "text-plain", "text": text, "title": str(i)} for i, text in enumerate(case["documents"])]
    answer = model_of(backend).invoke([HumanMessage([*blocks, {"type": "text", "text": "Which?"}])])
    assert [s["source_id"] for s in segments(answer)] == ["0", "1"]
    assert len({span.token_ids for span in backend.last_prompt.spans}) == 2
    assert "".join(case["documents"]) in backend.last_prompt.text


def test_chinese_at_the_seam(backend: Recorder, case: Case) -> None:
    first = stuff(backend, case["documents"])
    second = stuff(backend, case["documents"][::-1], "汉?")
    assert [span.state for span in first.values()] == ["cold", "cold"]
    assert [span.state for span in second.values()] == ["hit", "hit"]
    model = ChatHypic(backend=backend, max_tokens=24)
    pieces = [chunk.text for chunk in model.stream("汉字" * 4)]
    assert "".join(pieces) == model.invoke("汉字" * 4).text
    for piece in pieces:
        piece.encode()  # no half of a character


def test_template_trims_content(strict: Recorder, case: Case) -> None:
    turns = chat(case["messages"])
    model_of(strict).invoke(turns[:1])
    model_of(strict).invoke(turns)
    first, second = (prompt for _, prompt in strict.asked)
    assert second.token_ids[: len(first)] == first.token_ids
    assert "user\npadded question<|im_end|>" in first.text
    padded = f"  {'The lease ends in May. ' * 8}\n"
    for question in ("When?", "What ends?"):
        stuff(strict, [padded], question)
        (span,) = strict.last_prompt.spans
        assert span.segment.text == padded.strip()
    assert strict.answers[-1].report.spans[0].state == "hit"


def test_whitespace_only_block(backend: Recorder, strict: Recorder, case: Case) -> None:
    roles = {"system": SystemMessage, "user": HumanMessage}
    turns = [roles[role](list(content)) for role, content in case["messages"]]
    for one in (backend, strict):
        answer = model_of(one).invoke(turns)
        assert answer.response_metadata["hypic"]["segments"] == []
        assert one.last_prompt.token_ids == one.bare_prompt().token_ids
        assert one.last_prompt.text.count("question") == 1


def test_document_larger_than_window(case: Case) -> None:
    # A hundredth of both sizes: the same overflow, without a minute of reading.
    words, window = case["document_words"] // 100, case["window"] // 100
    one = Recorder(engine_with(max_position_embeddings=window))
    with pytest.raises(ContextOverflow, match=str(window)) as caught:
        stuff(one, ["word " * words])
    assert isinstance(caught.value, exceptions.ContextOverflowError)
    assert caught.value.prompt_len == len(one.last_prompt) > words
    assert str(caught.value.prompt_len) in str(caught.value)
    assert one.answers == []
    assert one.engine.stats().entries == 0
    one.close()
