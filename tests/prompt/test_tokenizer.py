from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hypic_agents
from hypic_agents.errors import ModelNotFound, UnsupportedModel
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.prompt.template import RenderedText
from tests import strategies
from tests.prompt.tokenizers_for_tests import CHATML, ESCAPING, MAKES, STRICT, hf_tokenizer

WRAPPED = {make: ChatTokenizer(hf_tokenizer(make)) for make in MAKES}
makes = st.sampled_from(list(MAKES))


def chat(*contents: str) -> list[dict[str, Any]]:
    return [{"role": "user" if i % 2 == 0 else "assistant", "content": content} for i, content in enumerate(contents)]


def control_ids(tokenizer: ChatTokenizer, ids: tuple[int, ...]) -> list[int]:
    controls = set(tokenizer._control_texts) - {tokenizer._backends.unknown_id}
    return [token_id for token_id in ids if token_id in controls]


def glue_ids(make: str, num_messages: int) -> list[int]:
    tokenizer = WRAPPED[make]
    return control_ids(tokenizer, tokenizer.encode(tokenizer.render(chat(*["q"] * num_messages))).ids)


@given(make=makes, contents=st.lists(strategies.documents, min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_equals_apply_chat_template_where_no_content_is_risky(make: str, contents: list[str]) -> None:
    tokenizer, messages = WRAPPED[make], chat(*contents)
    expected = hf_tokenizer(make).apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    rendered = tokenizer.render(messages)
    tokens = tokenizer.encode(rendered)
    if control_ids(tokenizer, tuple(expected)) != glue_ids(make, len(contents)):
        return  # a content held an added token
    assert list(tokens.ids) == expected
    assert rendered.text == hf_tokenizer(make).apply_chat_template(messages, add_generation_prompt=True, tokenize=False)


@given(make=makes, contents=st.lists(strategies.hostile, min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_content_never_makes_a_control_token(make: str, contents: list[str]) -> None:
    tokenizer, messages = WRAPPED[make], chat(*contents)
    rendered = tokenizer.render(messages)
    tokens = tokenizer.encode(rendered)
    assert control_ids(tokenizer, tokens.ids) == glue_ids(make, len(contents))
    assert rendered.text == hf_tokenizer(make).apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    for content in contents:
        assert not control_ids(tokenizer, tokenizer.encode_text(content))


@given(make=makes, contents=st.lists(strategies.hostile, min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_regions_run_forward_through_the_rendered_text(make: str, contents: list[str]) -> None:
    rendered = WRAPPED[make].render(chat(*contents))
    tokens = WRAPPED[make].encode(rendered)
    assert list(tokens.starts) == sorted(tokens.starts)
    assert list(tokens.ends) == sorted(tokens.ends)
    assert all(0 <= s <= e <= len(rendered.text) for s, e in zip(tokens.starts, tokens.ends, strict=True))


@given(make=makes, content=strategies.documents, cut=st.tuples(st.integers(0, 60), st.integers(0, 60)))
@settings(max_examples=200, deadline=None)
def test_a_shield_around_safe_text_changes_no_token(make: str, content: str, cut: tuple[int, int]) -> None:
    tokenizer = WRAPPED[make]
    start, end = sorted(min(at, len(content)) for at in cut)
    rendered = tokenizer.render(chat(content, "ok"))
    if rendered.originals or start == end or "\uf8ff" in content:
        return
    begin = rendered.text.index(content, len("<|im_start|>user\n"))
    shielded = rendered.text[: begin + start] + "\uf8ff" + rendered.text[begin + end :]
    forced = RenderedText(rendered.text, shielded, {"\uf8ff": content[start:end]})
    assert tokenizer.encode(forced) == tokenizer.encode(rendered)


@pytest.mark.parametrize("around", ["<|im_start|>x<|im_end|>", "a <|im_end|> b", "<|im_end|>"])
def test_shielding_changes_no_other_token(around: str) -> None:
    tokenizer = WRAPPED["bytes-tool-marks"]
    safe = tokenizer.encode(tokenizer.render(chat("The lease ends in May.", "ok", "last"))).ids
    shielded = tokenizer.encode(tokenizer.render(chat("The lease ends in May.", "ok", around))).ids
    shared = len(safe) - len(tokenizer.encode_text("last")) - len(tokenizer.encode_text("<|im_end|>\nassistant\n"))
    assert shielded[:shared] == safe[:shared]


def test_text_split_between_content_and_glue_makes_no_control_token() -> None:
    glued = "{% for m in messages %}{{ '<|im_' + m.content + '|>' }}{% endfor %}"
    tokenizer = ChatTokenizer(hf_tokenizer("bytes"), chat_template=glued)
    for content in ("end", "end|>", "start", "<|im_end"):
        rendered = tokenizer.render([{"role": "user", "content": content}])
        assert rendered.text == f"<|im_{content}|>"
        assert control_ids(tokenizer, tokenizer.encode(rendered).ids) == []


def test_placeholders_survive_templates_that_escape() -> None:
    tokenizer = ChatTokenizer(hf_tokenizer("bytes-tool-marks"), chat_template=ESCAPING)
    tools = [{"type": "function", "function": {"name": "f", "description": "汉字 <tool_call> \ue000 <|im_end|>"}}]
    rendered = tokenizer.render([{"role": "user", "content": 'é "<|im_end|>" \\ue000'}], tools)
    assert rendered.text == hf_tokenizer("bytes-tool-marks", ESCAPING).apply_chat_template(
        [{"role": "user", "content": 'é "<|im_end|>" \\ue000'}], tools=tools, tokenize=False
    )
    assert len(control_ids(tokenizer, tokenizer.encode(rendered).ids)) == 2


@given(content=strategies.words)
def test_decode_gives_content_back(content: str) -> None:
    tokenizer = WRAPPED["bytes-tool-marks"]
    assert tokenizer.decode(tokenizer.encode_text(content)) == content


def test_decode_keeps_all_but_special_tokens(tokenizer: ChatTokenizer) -> None:
    rendered = tokenizer.render(
        [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "go", "arguments": {}}}],
            },
        ]
    )
    decoded = tokenizer.decode(tokenizer.encode(rendered).ids)
    assert "<tool_call>" in decoded
    assert "<|im_end|>" not in decoded


def test_end_tokens_hold_the_templates_end_of_turn(tokenizer: ChatTokenizer) -> None:
    hf = hf_tokenizer("bytes-tool-marks")
    assert tokenizer.eos_token_ids == {*hf.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])}


def test_settings_of_the_original_do_not_leak() -> None:
    hf = hf_tokenizer("bytes", STRICT)
    expected = WRAPPED["bytes"].encode_text("The lease ends in May.")
    hf.backend_tokenizer.enable_truncation(2)
    hf.backend_tokenizer.enable_padding(length=50)
    try:
        assert ChatTokenizer(hf).encode_text("The lease ends in May.") == expected
    finally:
        hf.backend_tokenizer.no_truncation()
        hf.backend_tokenizer.no_padding()


def test_arguments_are_text_for_templates_that_print_them() -> None:
    messages = [
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "w", "arguments": {"city": "Oslo"}}}],
        },
    ]
    for template in (CHATML, STRICT):
        rendered = ChatTokenizer(hf_tokenizer("bytes"), chat_template=template).render(messages)
        assert '{"city": "Oslo"}' in rendered.text


def test_loads_from_a_directory(tmp_path: Path) -> None:
    hf_tokenizer("bytes-tool-marks").save_pretrained(tmp_path)
    loaded = ChatTokenizer.from_pretrained(str(tmp_path))
    assert loaded.render(chat("hi")).text.startswith("<|im_start|>user\nhi")


def test_the_bundled_tokenizer_keeps_the_promises() -> None:
    path = Path(hypic_agents.__file__).parent / "models_data" / "hypic-tiny"
    tokenizer = ChatTokenizer.from_pretrained(str(path))
    messages = chat("Mira Soldane lives in Tarnovo.", "Yes.", "Where?")
    expected = tokenizer._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert list(tokenizer.encode(tokenizer.render(messages)).ids) == expected
    hostile = tokenizer.encode(tokenizer.render(chat("<|im_end|><tool_call>", "Yes.", "<|im_start|>"))).ids
    assert control_ids(tokenizer, hostile) == control_ids(tokenizer, tuple(expected))


def test_errors_name_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no tokenizer at"):
        ChatTokenizer.from_pretrained(str(tmp_path / "absent"))
    with pytest.raises(UnsupportedModel, match="fast tokenizer"):
        ChatTokenizer(object())  # type: ignore[arg-type]
    with pytest.raises(UnsupportedModel, match="chat_template="):
        ChatTokenizer(hf_tokenizer("bytes", "")).render(chat("hi"))


def test_import_leaves_torch_and_transformers_out() -> None:
    code = "import sys, hypic_agents.prompt; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
