from __future__ import annotations

import json

from hypic_agents.core import Scope, SegmentKind
from hypic_agents.prompt.canonical import canonical_tool
from hypic_agents.prompt.parts import system_segments, tool_segments, turn_segments

SCOPE = Scope("acme")


def test_system_texts_are_cut_at_what_is_volatile() -> None:
    text = "Current time is 15:09:20.\nYou answer questions about the house, and never of another."
    found = [known.segment for known in system_segments([text, "Be brief."], SCOPE)]
    assert [segment.text for segment in found] == [text.partition("\n")[2], "Be brief."]
    assert {(segment.kind, segment.scope) for segment in found} == {("system", SCOPE)}


def test_tools_are_found_as_the_template_wrote_them() -> None:
    tools = [canonical_tool({"name": name, "description": "汉字"}) for name in ("alpha", "beta", "gamma")]
    text = json.dumps(tools[0], ensure_ascii=False) + json.dumps(tools[1]["function"], indent=4)
    found = [known.segment for known in tool_segments(tools, text, SCOPE)]
    assert [(s.source_id, s.kind, s.scope) for s in found] == [("alpha", "tool", SCOPE), ("beta", "tool", SCOPE)]
    assert all(segment.text in text for segment in found)


def test_only_long_turns_count() -> None:
    texts: list[tuple[SegmentKind, str]] = [("turn", "a" * 199), ("turn", "b" * 200), ("trace", "c" * 200)]
    found = [known.segment for known in turn_segments(texts, SCOPE)]
    assert [(segment.kind, segment.text) for segment in found] == texts[1:]
