from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.detokenize import Detokenizer
from tests.prompt.tokenizers_for_tests import hf_tokenizer

PIECES = [
    "<unk>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "▁",
    "▁the",
    "▁a",
    "b",
    "é",
    "汉",
    "▁▁",
    "\ufffd",
    "ing",
]


@cache
def chat_tokenizer(name: str) -> ChatTokenizer:
    if name != "byte-fallback":
        return ChatTokenizer(hf_tokenizer(name))
    # As Llama 2 has it: words with a mark for the blank before them, and single bytes for all else.
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(PIECES)}, [], unk_token="<unk>"))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return ChatTokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>"))


NAMES = ["bytes-tool-marks", "metaspace-first", "unigram", "byte-fallback"]


def pushed(name: str, ids: Sequence[int], stop: Sequence[str] = ()) -> tuple[list[str], Detokenizer]:
    """Every piece that was shown, up to where it stops."""
    tokenizer = chat_tokenizer(name)
    detokenizer = Detokenizer(tokenizer.decode, stop, tokenizer.byte_token_ids)
    pieces = []
    for token in ids:
        pieces.append(detokenizer.push(token))
        if detokenizer.stopped:
            break
    return [*pieces, detokenizer.finish()], detokenizer


ids_lists = st.lists(st.integers(0, 10**6), max_size=150)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(numbers=ids_lists)
@example(numbers=list(range(1, 290)))
@example(numbers=[1, 0, 129])
@example(numbers=[257, *range(128, 192)] * 3)
def test_pieces_make_up_the_text_of_all_tokens(name: str, numbers: list[int]) -> None:
    tokenizer = chat_tokenizer(name)
    size = len(tokenizer._tokenizer)
    ids = [number % size for number in numbers]
    pieces, detokenizer = pushed(name, ids)
    assert detokenizer.text == "".join(pieces) == tokenizer.decode(ids)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@example(text=" aa", stop=["a", " aa"])
@given(
    text=st.text("ab the汉字👍🏽é\n\u0300", max_size=80),
    stop=st.lists(st.text("ab 汉👍\n", min_size=1, max_size=4), max_size=3),
)
def test_characters_are_whole_and_the_first_complete_stop_cuts(name: str, text: str, stop: list[str]) -> None:
    tokenizer = chat_tokenizer(name)
    ids = tokenizer.encode_text(text)
    whole = tokenizer.decode(ids)
    found = [(whole.find(s) + len(s), whole.find(s)) for s in stop if s in whole]
    pieces, detokenizer = pushed(name, ids, stop)
    assert "".join(pieces) == detokenizer.text == whole[: min(found)[1] if found else len(whole)]
    assert detokenizer.stopped == bool(found)
    if "\ufffd" not in whole:
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_stop_that_ends_in_many_bytes_hides_its_beginning() -> None:
    ids = chat_tokenizer("bytes-tool-marks").encode_text("so a汉b")
    pieces, detokenizer = pushed("bytes-tool-marks", ids, ["a汉"])
    assert "".join(pieces) == "so " and detokenizer.stopped


@pytest.mark.parametrize("name", NAMES)
def test_each_token_decodes_a_bounded_window(name: str) -> None:
    tokenizer = chat_tokenizer(name)
    ids = tokenizer.encode_text("the tenant pays the rent 汉字 on May 4.\n" * 60)
    if name == "byte-fallback":
        ids = tuple(PIECES.index(piece) for piece in ["▁the", "b", "ing", "<0xE6>", "<0xB1>", "<0x89>", "é"] * 100)
    sizes: list[int] = []

    def decode(window: Sequence[int]) -> str:
        sizes.append(len(window))
        return tokenizer.decode(window)

    detokenizer = Detokenizer(decode, ["\n\n", "rent rent"], tokenizer.byte_token_ids)
    text = "".join([*map(detokenizer.push, ids), detokenizer.finish()])
    assert text == tokenizer.decode(ids)
    assert len(ids) > 500 and max(sizes) < 100 and len(sizes) < 3 * len(ids)
