from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.prompt.specials import ControlTokens, Shields, restore
from tests import strategies

vocabularies = st.lists(st.text("<|>abe ", min_size=1, max_size=5), max_size=12)
contents = st.text("<|>abe \ue000", max_size=12)


@given(vocabulary=vocabularies, left=contents, content=contents, right=contents)
def test_no_neighbour_makes_a_control_token_of_hidden_content(
    vocabulary: list[str], left: str, content: str, right: str
) -> None:
    controls = ControlTokens(vocabulary)
    shields = Shields(controls, avoid=left + right)
    hidden = str(shields.hide(content))
    assert restore(hidden, shields.originals) == content
    around = left + hidden + right
    for token in controls.texts:
        for found in re.finditer(f"(?={re.escape(token)})", around):
            inside = range(max(len(left), found.start()), min(len(left + hidden), found.start() + len(token)))
            # Blanks aside, every character of the match is the neighbours' own.
            assert not around[inside.start : inside.stop].strip()


@given(vocabulary=vocabularies, text=contents)
def test_finds_every_control_token(vocabulary: list[str], text: str) -> None:
    controls = ControlTokens(vocabulary)
    regions = controls.find(text)
    assert regions == sorted(regions)
    assert all(a[1] <= b[0] for a, b in pairwise(regions))
    covered = {i for start, end in regions for i in range(start, end)}
    for token in controls.texts:
        for found in re.finditer(re.escape(token), text):
            assert covered & set(range(*found.span()))


@given(st.recursive(strategies.hostile, lambda inner: st.lists(inner) | st.dictionaries(strategies.words, inner)))
def test_hiding_is_undone_by_restoring(value: Any) -> None:
    shields = Shields(ControlTokens(strategies.CONTROL_LOOKALIKES[:5]))

    def restored(part: Any) -> Any:
        if isinstance(part, str):
            return restore(part, shields.originals)
        if isinstance(part, list):
            return [restored(item) for item in part]
        return {restored(key): restored(item) for key, item in part.items()}

    assert restored(shields.hide(value)) == value


def test_names_that_templates_look_up_stay() -> None:
    shields = Shields(ControlTokens(["type", "name", "string", "<x>"]))
    hidden = shields.hide({"type": "string", "name": "<x> type"})
    assert hidden["type"] == "string"
    assert "<x>" not in hidden["name"]
    assert "type" not in hidden["name"]


def test_runs_of_spaces_are_text() -> None:
    assert ControlTokens(["  ", "\n\n"]).find("a  b\n\n") == []


def test_thousands_of_control_tokens_are_found_as_the_longest() -> None:
    controls = ControlTokens(f"<unused{i}>" for i in range(6000))
    text = "x < y " * 2000 + "<unused599> <unused5999>"
    assert [text[start:end] for start, end in controls.find(text)] == ["<unused599>", "<unused5999>"]
