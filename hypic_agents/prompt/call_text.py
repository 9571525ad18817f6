"""Tool calls as chat templates let models write them, read while they are written.

Two spellings stand between ``<tool_call>`` and ``</tool_call>``: JSON, ``{"name": "f", "arguments": {...}}``, and tags,
``<function=f><parameter=x>value</parameter></function>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hypic_agents.calls import InvalidToolCall, ToolCall

CALL, END_CALL = "<tool_call>", "</tool_call>"

_JSON_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
_TAG_HEAD = re.compile(r"\s*<function=([^>\s]+)>\s*")
_PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_END_PARAMETER = "</parameter>"
_TAG_END = re.compile(r"\s*</function>")
_STEPS = re.compile(r'[{}"\\]')


class CallReader:
    """Reads one call, from behind ``<tool_call>``.

    Attributes:
        name: The function's name, once read.
        arguments: JSON text of the arguments, as far as known.
        raw: All that was read.
        closed: ``</tool_call>`` was read; ``rest`` is what follows it.
    """

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self.name = ""
        self.arguments = ""
        self.raw = ""
        self.closed = False
        self.rest = ""
        self._schemas = schemas
        self._form: _JsonCall | _TagCall | None = None

    def push(self, piece: str) -> str:
        """Take text; the part of the arguments' JSON text that became known."""
        self.raw += piece
        if self._form is None:
            start = self.raw.lstrip()[:1]
            if not start:
                return ""
            self._form = _TagCall(self._schemas) if start == "<" else _JsonCall()
            piece = self.raw
        known = self._form.push(piece)
        self.name = self._form.name
        where = self._form.rest if self._form.complete else "" if self.name else self.raw
        before, end, behind = where.partition(END_CALL)
        if end:
            self.closed, self.rest = True, behind
            self.raw = self.raw[: len(self.raw) - len(behind)]
            if not self.name:
                self.name, known = _whole_call(before)
        self.arguments += known
        return known

    def result(self, call_id: str) -> ToolCall | InvalidToolCall | None:
        """The call as it stands; None where it is no call at all, but text."""
        if not self.name:
            return None
        try:
            arguments = json.loads(self.arguments, strict=False)
        except ValueError as error:
            problem = str(error) if self.closed else "the answer ended inside the call"
            return InvalidToolCall(self.name, self.arguments, call_id, problem)
        return ToolCall(self.name, arguments, call_id)


def _whole_call(body: str) -> tuple[str, str]:
    """Name and arguments of a call spelled as JSON in an unusual order; empty where it is none."""
    try:
        call = json.loads(body, strict=False)
    except ValueError:
        return "", ""
    arguments = call.get("arguments", {}) if isinstance(call, dict) else None
    if isinstance(arguments, dict) and isinstance(call.get("name"), str):
        return call["name"], _json(arguments)
    return "", ""


class _JsonCall:
    """A call spelled as JSON. Its arguments are passed on as they come."""

    def __init__(self) -> None:
        self.name = ""
        self.complete = False
        self.rest = ""
        self._text = ""
        self._at = 0
        self._depth = 0
        self._in_string = False

    def push(self, piece: str) -> str:
        self._text += piece
        if self.complete:
            self.rest += piece
            return ""
        if not self.name:
            head = _JSON_HEAD.match(self._text)
            if head is None:
                return ""
            self.name = json.loads(head[1], strict=False)
            self._at = head.end()
        start = self._at
        while not self.complete:
            step = _STEPS.search(self._text, self._at)
            if step is None:
                self._at = len(self._text)
                break
            if step[0] == "\\" and step.end() == len(self._text):
                self._at = step.start()  # what it escapes is still to come
                break
            self._at = step.end() + (step[0] == "\\")
            if step[0] == '"':
                self._in_string = not self._in_string
            elif step[0] != "\\" and not self._in_string:
                self._depth += 1 if step[0] == "{" else -1
                self.complete = self._depth == 0
        self.rest = self._text[self._at :] if self.complete else ""
        return self._text[start : self._at]


class _TagCall:
    """A call spelled with tags. A value is JSON where its parameter's schema is not a string and it parses."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self.name = ""
        self.complete = False
        self.rest = ""
        self._schemas = schemas
        self._text = ""
        self._at = self._seek = 0
        self._num_parameters = 0

    def push(self, piece: str) -> str:
        self._text += piece
        known = ""
        if self.complete:
            self.rest += piece
            return ""
        if not self.name:
            head = _TAG_HEAD.match(self._text)
            if head is None:
                return ""
            self.name, known = head[1], "{"
            self._at = self._seek = head.end()
        while (found := self._text.find(_END_PARAMETER, self._seek)) >= 0:
            parameter = _PARAMETER.match(self._text, self._at)
            self._at = self._seek = parameter.end() if parameter else found + len(_END_PARAMETER)
            if parameter is None:
                continue
            comma = ", " if self._num_parameters else ""
            known += f"{comma}{_json(parameter[1])}: {_json(self._value(parameter[1], parameter[2]))}"
            self._num_parameters += 1
        self._seek = max(self._at, len(self._text) - len(_END_PARAMETER))
        if end := _TAG_END.match(self._text, self._at):
            self.complete, self.rest = True, self._text[end.end() :]
            known += "}"
        return known

    def _value(self, key: str, text: str) -> Any:
        properties = self._schemas.get(self.name, {}).get("properties", {})
        if properties.get(key, {}).get("type") == "string":
            return text
        try:
            return json.loads(text)
        except ValueError:
            return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
