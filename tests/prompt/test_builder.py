from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypic_agents.core import Prompt, Scope, Segment
from hypic_agents.errors import EmptyPrompt, InvalidMessages, VersionConflict
from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from tests import strategies
from tests.prompt.tokenizers_for_tests import MAKES, STRICT, hf_tokenizer

BUILDERS = {make: PromptBuilder(ChatTokenizer(hf_tokenizer(make))) for make in MAKES}
DOCS = [
    "The lease ends in May. The tenant pays the rent on the first day of each month.",
    "汉字(Hanzi)是记录汉语的文字。汉字(Hanzi)是记录汉语的文字。",
    "def main():\n    for i in range(10):\n        print(i)\n",
    "\ufeffline one\r\nline two, which is a little longer\r\n",
    "  leading and trailing blanks, twice over  \n\n",
]
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"{name} tool", "parameters": {"type": "object"}}}
    for name in ("beta", "alpha", "gamma")
]


def check(prompt: Prompt, tokenizer: ChatTokenizer) -> None:
    """What every prompt promises."""
    end = 0
    for span in prompt.spans:
        assert end <= span.start < span.end <= len(prompt)
        assert span.origin <= span.start
        assert span.end - span.origin <= len(span.token_ids)
        own = span.token_ids[span.start - span.origin : span.end - span.origin]
        assert prompt.token_ids[span.start : span.end] == own
        assert span.token_ids == tokenizer.encode_text(span.segment.text)
        assert span.segment.text in prompt.text
        end = span.end


def texts(prompt: Prompt, *kinds: str) -> list[str]:
    return [span.segment.text for span in prompt.spans if not kinds or span.segment.kind in kinds]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


parts = st.lists(st.one_of(st.sampled_from(DOCS), strategies.documents, strategies.hostile), max_size=4)


@given(make=st.sampled_from(list(MAKES)), documents=parts, memory=parts, question=strategies.hostile)
@settings(max_examples=200, deadline=None)
def test_build_equals_the_chat_and_segments_change_no_id(
    make: str, documents: list[str], memory: list[str], question: str
) -> None:
    builder = BUILDERS[make]
    prompt = builder.build(system="Be brief.", tools=TOOLS, documents=documents, memory=memory, question=question + "?")
    check(prompt, builder._tokenizer)
    body = [part for part in [*memory, *documents] if part.strip()]
    chat = [{"role": "system", "content": "Be brief."}, user("\n\n".join([*body, question + "?"]))]
    plain = builder.build_chat(chat, tools=TOOLS)
    assert (prompt.token_ids, prompt.text) == (plain.token_ids, plain.text)
    declared = [Segment(part, "memory") for part in memory] + [Segment(part) for part in documents]
    assert builder.build_chat(chat, tools=TOOLS, segments=declared) == prompt


@given(make=st.sampled_from(list(MAKES)), order=st.permutations(DOCS), template=st.sampled_from([None, STRICT]))
@settings(max_examples=100, deadline=None)
def test_documents_keep_their_tokens_in_any_order(make: str, order: list[str], template: str | None) -> None:
    tokenizer = ChatTokenizer(hf_tokenizer(make), chat_template=template)
    prompt = PromptBuilder(tokenizer).build(system="Be brief.", documents=order, question="What?")
    check(prompt, tokenizer)
    spans = [span for span in prompt.spans if span.segment.kind == "document"]
    assert [span.segment.text.strip() for span in spans] == [doc.strip() for doc in order]
    for span in spans:
        assert span.start - span.origin <= 2
        assert len(span.token_ids) - (span.end - span.origin) <= 2


def test_layout(builder: PromptBuilder, tokenizer: ChatTokenizer) -> None:
    prompt = builder.build(
        system="You are helpful.",
        tools=TOOLS,
        documents=[DOCS[0], Segment(DOCS[2], "file", "main.py", "1")],
        memory=["The tenant is called Mira."],
        messages=[user("hi"), assistant("hello")],
        question="When does it end?",
    )
    check(prompt, tokenizer)
    last = f"The tenant is called Mira.\n\n{DOCS[0]}\n\n{DOCS[2]}\n\nWhen does it end?"
    assert prompt.text.endswith(f"hello<|im_end|>\n<|im_start|>user\n{last}<|im_end|>\n<|im_start|>assistant\n")
    assert [span.segment.kind for span in prompt.spans] == ["system", *["tool"] * 3, "memory", "document", "file"]
    assert prompt.spans[-1].segment == Segment(DOCS[2], "file", "main.py", "1")


def test_without_a_question_parts_lead_the_last_user_message(builder: PromptBuilder) -> None:
    prompt = builder.build(documents=[DOCS[0]], messages=[user("a"), assistant("b"), user("c"), assistant("d")])
    assert f"user\n{DOCS[0]}\n\nc<|im_end|>" in prompt.text
    alone = builder.build(documents=[DOCS[0]], messages=[assistant("b")])
    assert f"user\n{DOCS[0]}<|im_end|>" in alone.text


def test_nothing_to_say(builder: PromptBuilder) -> None:
    for question in (None, "", "  "):
        with pytest.raises(EmptyPrompt):
            builder.build(system="s", documents=DOCS, question=question)
    with pytest.raises(EmptyPrompt):
        builder.build_chat([])


def test_parts_of_another_type_name_themselves(builder: PromptBuilder) -> None:
    with pytest.raises(InvalidMessages, match="document 1 must be text or a Segment, not dict"):
        builder.build(documents=["a", {"text": "b"}], question="q")  # type: ignore[list-item]
    with pytest.raises(InvalidMessages, match="message 0"):
        builder.build(system="s", documents=["a"], messages=["text"])  # type: ignore[list-item]


def test_two_versions_of_one_source_do_not_meet(builder: PromptBuilder) -> None:
    old, new = Segment(DOCS[0], source_id="lease", version="1"), Segment(DOCS[2], source_id="lease", version="2")
    with pytest.raises(VersionConflict, match=r"lease.*'1'.*'2'"):
        builder.build(documents=[old, new], question="q")
    chat = [user(f"{DOCS[0]}\n\n{DOCS[2]}")]
    with pytest.raises(VersionConflict):
        builder.build_chat(chat, segments=[old, new])
    assert len(builder.build_chat([user(DOCS[0])], segments=[old, new]).spans) == 1
    assert builder.build(documents=[old, Segment(DOCS[2], source_id="lease")], question="q").spans


def test_scope_reaches_every_part(builder: PromptBuilder) -> None:
    acme, other = Scope("acme"), Scope("other")
    prompt = builder.build(
        system="Be brief.", tools=TOOLS, documents=[DOCS[0], Segment(DOCS[2], scope=other)], question="q", scope=acme
    )
    assert {span.segment.scope for span in prompt.spans if span.segment.text != DOCS[2]} == {acme}
    assert prompt.spans[-1].segment.scope == other
    assert builder.build_chat([{"role": "system", "content": "Be brief."}], scope=acme).spans[0].segment.scope == acme


def test_documents_inside_a_system_message_are_found(builder: PromptBuilder, tokenizer: ChatTokenizer) -> None:
    rules = "Answer from the context only, and say so where it does not tell."
    chat = [{"role": "system", "content": f"{rules}\n\n{DOCS[0]}\n\n{DOCS[2]}"}, user("q")]
    prompt = builder.build_chat(chat, segments=[Segment(doc) for doc in (DOCS[2], DOCS[0])])
    check(prompt, tokenizer)
    assert texts(prompt) == [rules, DOCS[0], DOCS[2]]


def test_long_turns_become_segments_and_documents_in_them_stay(
    builder: PromptBuilder, tokenizer: ChatTokenizer
) -> None:
    answer, long_result = "The lease ends in May. " * 12, "4 degrees in Oslo, " * 20
    chat = [user(f"{DOCS[0]}\n\nq"), assistant(answer), {"role": "tool", "content": long_result}, user("x " * 300)]
    prompt = builder.build_chat(chat, segments=[Segment(DOCS[0])])
    check(prompt, tokenizer)
    assert texts(prompt, "turn") == [answer]
    assert texts(prompt, "trace") == [long_result]
    assert texts(prompt, "document") == [DOCS[0]]


def test_a_long_prompt_is_tokenised_whole_once_and_each_document_once(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = BUILDERS["bytes-tool-marks"]
    documents = [f"{i}: " + "The lease ends in May, and the tenant pays the rent.\n" * 58 for i in range(20)]
    tokenizer = builder._tokenizer
    calls = {"encode": 0, "encode_text": 0}
    for name in calls:
        original = getattr(type(tokenizer), name)

        def counted(self: Any, what: Any, name: str = name, original: Any = original) -> Any:
            calls[name] += 1
            return original(self, what)

        monkeypatch.setattr(type(tokenizer), name, counted)
    assert len(builder.build(documents=documents, question="q").spans) == 20
    assert calls == {"encode": 1, "encode_text": 20}
