"""An answer while it comes in: pieces of a server's replies to chunks, and at the end the completion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from hypic_agents.calls import InvalidToolCall, ToolCall, ToolCallDelta
from hypic_agents.completion import Completion, FinishReason, ReuseReport, StreamChunk, Usage
from hypic_agents.integrations.sglang.errors import InvalidReply
from hypic_agents.integrations.sglang.payload import AnswerForm
from hypic_agents.integrations.sglang.replies import Counts, Piece
from hypic_agents.prompt.answer import AnswerReader


@dataclass(slots=True)
class _Call:
    """A call that the server took out of the text itself."""

    name: str = ""
    id: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """Puts one answer together.

    Attributes:
        form: How it is read.
        in_reasoning: The prompt ends inside the reasoning.
        counts, finish, token_ids: As the server reported them so far.
    """

    form: AnswerForm
    in_reasoning: bool = False
    counts: Counts | None = None
    finish: FinishReason | None = None
    token_ids: tuple[int, ...] = ()
    _calls: dict[int, _Call] = field(default_factory=dict)
    _reasoning: str = ""
    _held: str = ""
    _is_free: bool = False
    _reader: AnswerReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = AnswerReader(self.form.tools, in_reasoning=self.in_reasoning)

    def push(self, piece: Piece) -> StreamChunk | None:
        """Take a piece; what may be shown now."""
        self.counts = piece.counts or self.counts
        self.finish = piece.finish or self.finish
        self.token_ids += piece.token_ids
        self._reasoning += piece.reasoning
        shown = self._reader.push(self._free(piece.text)) or StreamChunk("")
        chunk = replace(
            shown,
            reasoning=piece.reasoning + shown.reasoning,
            tool_calls=shown.tool_calls + tuple(map(self._taken, piece.calls)),
            token_ids=piece.token_ids,
        )
        return chunk if chunk.text or chunk.reasoning or chunk.tool_calls or chunk.token_ids else None

    def end(self) -> StreamChunk:
        """What was still held back.

        Raises:
            InvalidReply: The server sent no usage, or did not say why it stopped.
        """
        if self.finish is None or self.counts is None:
            raise InvalidReply("the answer ends without a finish reason or without token counts")
        calls = self._json_calls()
        rest = StreamChunk("") if calls else self._reader.push(self._held) or StreamChunk("")
        last = self._reader.finish() or StreamChunk("")
        return StreamChunk(
            rest.text + last.text,
            reasoning=rest.reasoning + last.reasoning,
            tool_calls=rest.tool_calls + last.tool_calls + calls,
        )

    def completion(self, report: ReuseReport, metadata: dict[str, Any]) -> Completion:
        """The whole answer; call it behind :meth:`end`."""
        assert self.counts is not None and self.finish is not None
        valid, invalid = list(self._reader.tool_calls), list(self._reader.invalid_tool_calls)
        for _, call in sorted(self._calls.items()):
            try:
                arguments = json.loads(call.arguments or "{}", strict=False)
            except ValueError as error:
                invalid.append(InvalidToolCall(call.name, call.arguments, call.id, str(error)))
                continue
            if isinstance(arguments, dict):
                valid.append(ToolCall(call.name, arguments, call.id))
            else:
                invalid.append(InvalidToolCall(call.name, call.arguments, call.id, "the arguments are no JSON object"))
        return Completion(
            text=self._reader.text,
            token_ids=self.token_ids,
            finish_reason=self.finish,
            usage=Usage(
                report.prompt_tokens, self.counts.completion, report.reused_tokens, created_tokens=report.cold_tokens
            ),
            report=report,
            tool_calls=tuple(valid),
            metadata=metadata,
            reasoning=self._reasoning + self._reader.reasoning,
            invalid_tool_calls=tuple(invalid),
        )

    def _taken(self, delta: ToolCallDelta) -> ToolCallDelta:
        call = self._calls.setdefault(delta.index, _Call())
        if delta.name and not call.name:
            call.name, call.id = delta.name, delta.id or _new_id()
            delta = replace(delta, id=call.id)
        else:
            delta = replace(delta, name="", id="")
        call.arguments += delta.arguments
        return delta

    def _free(self, text: str) -> str:
        """Text that cannot be the beginning of a JSON array of calls."""
        self._held += text
        head = self._held.lstrip()
        self._is_free = self._is_free or not self.form.json_calls or (head != "" and not head.startswith("["))
        if not self._is_free:
            return ""
        free, self._held = self._held, ""
        return free

    def _json_calls(self) -> tuple[ToolCallDelta, ...]:
        """Calls that came as JSON; none where the text is something else."""
        try:
            found = json.loads(self._held, strict=False)
        except ValueError:
            return ()
        names = {tool.get("function", tool)["name"] for tool in self.form.tools}
        if not isinstance(found, list) or not found or not all(_is_call(one, names) for one in found):
            return ()
        return self._all_taken(found)

    def _all_taken(self, found: Sequence[dict[str, Any]]) -> tuple[ToolCallDelta, ...]:
        first = len(self._calls)
        return tuple(
            self._taken(ToolCallDelta(first + i, json.dumps(one["parameters"], ensure_ascii=False), one["name"]))
            for i, one in enumerate(found)
        )


def _is_call(value: Any, names: set[str]) -> bool:
    return isinstance(value, dict) and value.get("name") in names and isinstance(value.get("parameters"), dict)


def _new_id() -> str:
    return f"call_{uuid4().hex[:24]}"
