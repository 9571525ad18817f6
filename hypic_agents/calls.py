"""Calls of tools that a model asks for, whole, broken and in pieces. No torch, no framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asked for."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class InvalidToolCall:
    """A call whose arguments are not a JSON object, such as one that ``max_tokens`` cut short.

    Attributes:
        arguments: The text as the model wrote it.
        error: What is wrong with it.
    """

    name: str
    arguments: str
    id: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a streamed tool call.

    The first piece of a call carries its ``name`` and ``id``; the ``arguments`` of all its pieces, joined, are the JSON
    text of its arguments. ``index`` counts the calls of one answer from 0.
    """

    index: int
    arguments: str = ""
    name: str = ""
    id: str = ""
