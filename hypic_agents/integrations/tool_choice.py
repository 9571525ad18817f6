"""The choice among tools, in every form frameworks use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hypic_agents.errors import InvalidInput

Choice = str | bool | Mapping[str, Any] | None

_ANY: Final = ("any", "required")


def parse_tool_choice(choice: Choice, specs: Sequence[Mapping[str, Any]]) -> str:
    """The backend's form: "auto", "none", "required" or a tool's name.

    ==============================================================  ==================
    given                                                           becomes
    ==============================================================  ==================
    ``None``, ``False``, "auto", ``{"type": "auto"}``               "auto"
    "none", ``{"type": "none"}``                                    "none"
    ``True``, "any", "required", ``{"type": "any"}``                "required"
    a name, ``{"function": {"name": n}}``, ``{"name": n}``          the name
    ==============================================================  ==================

    Args:
        choice: As above.
        specs: Tools in OpenAI's shape.

    Raises:
        InvalidInput: It names none of the tools.
    """
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
        choice = name or choice.get("type")
    names = [str(spec["function"]["name"]) for spec in specs if "function" in spec]
    if isinstance(choice, str) and choice in names:
        return choice
    if choice in (None, False, "auto"):
        return "auto"
    if choice == "none":
        return "none"
    if choice is True or choice in _ANY:
        return "required"
    known = ", ".join(names) or "none are given"
    raise InvalidInput(f"tool_choice={choice!r}: use auto, none, any, required or a tool's name; the tools: {known}")
