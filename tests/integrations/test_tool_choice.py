from __future__ import annotations

from typing import Any

import pytest

from hypic_agents.errors import InvalidInput
from hypic_agents.integrations.tool_choice import parse_tool_choice

SPECS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("find", "any")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "auto"),
        (False, "auto"),
        ("auto", "auto"),
        ({"type": "auto"}, "auto"),
        ("none", "none"),
        ({"type": "none"}, "none"),
        (True, "required"),
        ("required", "required"),
        ("find", "find"),
        ({"type": "function", "function": {"name": "find"}}, "find"),
        ({"type": "tool", "name": "find"}, "find"),
        ("any", "any"),  # a tool of that name
    ],
)
def test_forms(given: Any, expected: str) -> None:
    assert parse_tool_choice(given, SPECS) == expected


def test_any_is_required_where_no_tool_is_called_so() -> None:
    assert parse_tool_choice("any", SPECS[:1]) == parse_tool_choice({"type": "any"}, SPECS[:1]) == "required"


def test_a_name_that_no_tool_has() -> None:
    with pytest.raises(InvalidInput, match=r"'search'.*find"):
        parse_tool_choice("search", SPECS)
