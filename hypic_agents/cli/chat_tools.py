"""The tools that ``hypic-agents chat --tools`` offers: files below a folder, and arithmetic."""

from __future__ import annotations

import ast
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from hypic_agents.calls import ToolCall
from hypic_agents.core import Segment
from hypic_agents.errors import InvalidInput

MAX_FILES: Final = 200
MAX_FILE_LEN: Final = 64_000  # characters

_MAX_EXPRESSION_LEN: Final = 200
_MAX_BITS: Final = 4096
_OPERATORS: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


class ToolFailed(Exception):
    """The tool could not do what was asked; the model is told why."""


@dataclass(frozen=True, slots=True)
class ChatTool:
    """A tool.

    Attributes:
        parameters: Name of each argument, all of them required texts, and what it means.
        run: Called with the arguments by name. A :class:`Segment` is a text that comes again, such as a file's.
    """

    name: str
    description: str
    parameters: Mapping[str, str]
    run: Callable[..., str | Segment]

    @property
    def spec(self) -> dict[str, Any]:
        """The tool as an OpenAI function."""
        properties = {name: {"type": "string", "description": text} for name, text in self.parameters.items()}
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


def make_tools(names: str, root: Path) -> tuple[ChatTool, ...]:
    """The tools named, separated by commas; "all" for every one.

    Args:
        names: As the user wrote them.
        root: Folder below which files may be listed and read.

    Raises:
        InvalidInput: An unknown name, or a root that is no folder.
    """
    if not root.is_dir():
        raise InvalidInput(f"--root {root} is no folder; name one that exists")
    tools = {
        tool.name: tool
        for tool in (
            ChatTool("list_files", "Lists the files that can be read.", {}, partial(list_files, root)),
            ChatTool("read_file", "Reads a file.", {"path": "Name of the file."}, partial(read_file, root)),
            ChatTool("calculator", "Computes a number.", {"expression": "Such as (2 + 3) * 4."}, calculate),
        )
    }
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in (*tools, "all")]
    if unknown:
        raise InvalidInput(f"unknown tool {unknown[0]!r}; the tools are all, {', '.join(tools)}")
    return tuple(tool for name, tool in tools.items() if name in wanted or "all" in wanted)


def run_tool(tools: Sequence[ChatTool], call: ToolCall) -> str | Segment:
    """The result of a call. Whatever is wrong with it becomes a text that tells the model."""
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        return f"error: there is no tool {call.name!r}"
    arguments = dict(call.arguments)
    if set(arguments) != set(tool.parameters) or not all(isinstance(value, str) for value in arguments.values()):
        return f"error: {tool.name} takes the texts {', '.join(tool.parameters) or 'none'}"
    try:
        return tool.run(**arguments)
    except ToolFailed as error:
        return f"error: {error}"


def list_files(root: Path) -> str:
    """Files below ``root`` by path, hidden ones and those in hidden folders left out."""
    found = sorted(_visible(root))
    shown = "\n".join(found[:MAX_FILES]) or "no files"
    return shown if len(found) <= MAX_FILES else f"{shown}\nand {len(found) - MAX_FILES} more"


def read_file(root: Path, path: str) -> Segment:
    """A text file below ``root``."""
    top = root.resolve()
    try:
        full = (top / path).resolve()
        if not full.is_relative_to(top):
            raise ToolFailed(f"{path} is outside of the folder")
        text = full.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ToolFailed(f"{path} is no text") from None
    except (OSError, ValueError) as error:  # a path with a null character is a ValueError
        raise ToolFailed(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > MAX_FILE_LEN:
        raise ToolFailed(f"{path} has {len(text)} characters; at most {MAX_FILE_LEN} can be read")
    return Segment(text, "file", str(full.relative_to(top)))


def calculate(expression: str) -> str:
    """The value of an arithmetic expression: numbers, ``+ - * / // % **`` and parentheses."""
    if len(expression) > _MAX_EXPRESSION_LEN:
        raise ToolFailed(f"the expression is longer than {_MAX_EXPRESSION_LEN} characters")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolFailed(f"{expression!r} is no arithmetic expression") from None
    except (ArithmeticError, TypeError) as error:
        raise ToolFailed(f"{expression!r} has no value: {error}") from None
    return str(value) if isinstance(value, int) else f"{value:.12g}"


def _value(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=sign, operand=inner) if type(sign) in _OPERATORS:
            return _real(_OPERATORS[type(sign)](_value(inner)))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            first, second = _value(left), _value(right)
            if isinstance(sign, ast.Pow) and isinstance(first, int) and isinstance(second, int):
                # Ints have no largest value: a short expression could fill the memory.
                _check_bits(first.bit_length() * abs(second))
            return _real(_OPERATORS[type(sign)](first, second))
    raise ValueError("not arithmetic")


def _real(value: Any) -> int | float:
    if isinstance(value, int):
        _check_bits(value.bit_length())
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise OverflowError("the number is too large")
        return value
    raise TypeError("it is not a real number")


def _check_bits(count: int) -> None:
    if count > _MAX_BITS:
        raise OverflowError("the number is too large")


def _visible(root: Path) -> Iterable[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (str((Path(folder) / name).relative_to(root)) for name in files if not name.startswith("."))
