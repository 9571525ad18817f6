"""What a model wrote, taken apart while it is written: the visible text, the reasoning, the tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import uuid4

from hypic_agents.calls import InvalidToolCall, ToolCall, ToolCallDelta
from hypic_agents.completion import StreamChunk
from hypic_agents.prompt.call_text import CALL, CallReader

THINK, END_THINK = "<think>", "</think>"


class AnswerReader:
    """Reads one answer. What is no well-formed part stays visible text.

    Args:
        tools: Specs shown to the model; without any, calls are text.
        in_reasoning: The prompt ends inside the reasoning, as some chat templates make it.

    Attributes:
        text, reasoning, tool_calls, invalid_tool_calls: What was read so far; complete after :meth:`finish`.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]] = (), *, in_reasoning: bool = False) -> None:
        functions = [tool.get("function", tool) for tool in tools]
        self._schemas = {str(f.get("name")): f.get("parameters") or {} for f in functions}
        self._mode: Literal["text", "reasoning", "call"] = "reasoning" if in_reasoning else "text"
        self._buffer = ""
        self._drop_space = in_reasoning  # a part begins with its first character that is not blank
        self._call = CallReader({})
        self._call_id = ""
        self._shown = {"text": "", "reasoning": ""}
        self._deltas: list[ToolCallDelta] = []
        self.text = ""
        self.reasoning = ""
        self.tool_calls: list[ToolCall] = []
        self.invalid_tool_calls: list[InvalidToolCall] = []

    def push(self, piece: str) -> StreamChunk | None:
        """Take text; what may be shown now."""
        self._buffer += piece
        while self._advance():
            pass
        return self._chunk()

    def finish(self) -> StreamChunk | None:
        """The rest, once no text follows."""
        if self._mode == "call":
            self._end_call()
        self._show("reasoning" if self._mode == "reasoning" else "text", self._buffer)
        self._buffer = ""
        return self._chunk()

    @property
    def _num_calls(self) -> int:
        return len(self.tool_calls) + len(self.invalid_tool_calls)

    def _advance(self) -> bool:
        """Take one part off the buffer; False when more text is needed."""
        if self._mode == "call":
            return self._read_call()
        if self._mode == "reasoning":
            if not self._show_until(END_THINK, "reasoning"):
                return False
            self._mode, self._drop_space = "text", True
            return True
        if not (self.text or self.reasoning or self._num_calls):
            head = self._buffer.lstrip()
            if head.startswith(THINK):
                self._buffer, self._mode, self._drop_space = head.removeprefix(THINK), "reasoning", True
                return True
            if THINK.startswith(head):
                return False
        if self._schemas and self._show_until(CALL, "text"):
            self._mode, self._call, self._call_id = "call", CallReader(self._schemas), ""
            return True
        if not self._schemas:
            self._show("text", self._buffer)
            self._buffer = ""
        return False

    def _show_until(self, mark: str, kind: Literal["text", "reasoning"]) -> bool:
        """Show the buffer up to ``mark``; blanks before it, and what may become it, are held back."""
        before, found, behind = self._buffer.partition(mark)
        if found:
            self._show(kind, before.rstrip())
            self._buffer = behind
            return True
        held = next((n for n in range(len(mark) - 1, 0, -1) if self._buffer.endswith(mark[:n])), 0)
        until = len(self._buffer[: len(self._buffer) - held].rstrip())
        self._show(kind, self._buffer[:until])
        self._buffer = self._buffer[until:]
        return False

    def _show(self, kind: Literal["text", "reasoning"], piece: str) -> None:
        if self._drop_space:
            piece = piece.lstrip()
        if not piece:
            return
        self._drop_space = False
        self._shown[kind] += piece
        if kind == "text":
            self.text += piece
        else:
            self.reasoning += piece

    def _read_call(self) -> bool:
        piece, self._buffer = self._buffer, ""
        arguments = self._call.push(piece)
        if self._call.name and not self._call_id:
            self._call_id = f"call_{uuid4().hex[:24]}"
            self._deltas.append(ToolCallDelta(self._num_calls, arguments, self._call.name, self._call_id))
        elif arguments:
            self._deltas.append(ToolCallDelta(self._num_calls, arguments))
        if self._call.closed:
            self._end_call()
        return self._call.closed

    def _end_call(self) -> None:
        result = self._call.result(self._call_id)
        self._mode, self._buffer = "text", self._call.rest
        if result is None:
            self._show("text", f"{CALL}{self._call.raw}")
            return
        self._drop_space = True
        if isinstance(result, ToolCall):
            self.tool_calls.append(result)
        else:
            self.invalid_tool_calls.append(result)

    def _chunk(self) -> StreamChunk | None:
        text, reasoning, deltas = self._shown["text"], self._shown["reasoning"], tuple(self._deltas)
        self._shown = {"text": "", "reasoning": ""}
        self._deltas = []
        return StreamChunk(text, reasoning=reasoning, tool_calls=deltas) if text or reasoning or deltas else None
