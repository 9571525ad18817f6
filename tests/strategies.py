"""Hypothesis strategies shared by the test packages."""

from __future__ import annotations

from hypothesis import strategies as st

CONTROL_LOOKALIKES = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<tool_call>",
    "</think>",
    "<Tool>",
    "<tool>",
    "<left>",
    "<right>",
    "lease",
    "two words",
    "<|im_",
    "end|>",
    "<",
    ">",
    "<unk>",
    "\ue000",
    "\\ue000",
]

# Text as documents hold it: any script, odd white space, quotes and escapes, private-use characters; no surrogates.
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
words = st.lists(
    st.sampled_from(
        ["The lease ends", " in May.", "\n", "\n\n", " ", "    ", "汉字", "é", "a", ": ", '"q"', "\r\n", "🙂"],
    ),
    max_size=20,
).map("".join)
documents = st.one_of(words, text, st.lists(st.one_of(words, text), max_size=4).map("".join))
hostile = st.lists(st.one_of(st.sampled_from(CONTROL_LOOKALIKES), words), min_size=1, max_size=8).map("".join)
