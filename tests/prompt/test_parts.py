from __future__ import annotations

import json

import pytest

from hypic_agents.core import Scope
from hypic_agents.prompt.canonical import canonical_tool
from hypic_agents.prompt.parts import system_segments, tool_segments, turn_segments

RULES = "You answer questions about the house. Breakfast is at 8:00 for everybody in it."
SCOPE = Scope("acme")


def system(text: str) -> list[str]:
    return [known.segment.text for known in system_segments([text], SCOPE)]


@pytest.mark.parametrize(
    "volatile",
    [
        "Current time is 15:09:20.",
        "Today is 5 January 2026.",
        "Today's date: Jan 5, 2026",
        "date = 2026-01-05",
        "[2026-01-05T15:09]",
        "Session 123e4567-e89b-12d3-a456-426614174000.",
        "Request 1767625760000.",
    ],
)
def test_what_changes_with_every_request_is_cut_out(volatile: str) -> None:
    assert system(f"{volatile}\n{RULES}") == [RULES]
    assert system(f"{RULES}\n{volatile}\n{RULES} Really.") == [RULES, f"{RULES} Really."]
    assert system(f"{RULES} {volatile}") == [RULES]


@pytest.mark.parametrize(
    "text", [RULES, "Be brief.", f"{RULES}\n\n- item 2026\n- open 9:00 to 17:00", "Founded 1 May 1890."]
)
def test_steady_texts_stay_whole(text: str) -> None:
    assert system(text) == [text]


def test_tools_are_found_as_the_template_wrote_them() -> None:
    tools = [canonical_tool({"name": name, "description": "汉字"}) for name in ("alpha", "beta", "gamma")]
    text = json.dumps(tools[0], ensure_ascii=False) + json.dumps(tools[1]["function"], indent=4)
    found = [known.segment for known in tool_segments(tools, text, SCOPE)]
    assert [(s.source_id, s.kind, s.scope) for s in found] == [("alpha", "tool", SCOPE), ("beta", "tool", SCOPE)]
    assert all(segment.text in text for segment in found)


def test_only_long_turns_count() -> None:
    assert [known.segment.text for known in turn_segments(["a" * 199, "b" * 200], SCOPE)] == ["b" * 200]
