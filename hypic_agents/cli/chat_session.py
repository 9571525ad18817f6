"""A conversation over documents and tools, on any backend."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from hypic_agents.backend import Backend, ChatRequest
from hypic_agents.calls import ToolCall
from hypic_agents.cli.chat_tools import ChatTool, run_tool
from hypic_agents.completion import Completion, StreamChunk, Usage
from hypic_agents.core import SamplingParams, Segment
from hypic_agents.errors import InvalidInput

MAX_CALLS: Final = 8  # of the model, for one answer


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A call that was carried out."""

    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer: every completion that led to it, and the tool results between them."""

    question: str
    completions: tuple[Completion, ...]
    results: tuple[ToolResult, ...]

    @property
    def last(self) -> Completion:
        """The completion that answers."""
        return self.completions[-1]

    @property
    def usage(self) -> Usage:
        """Tokens of all completions together."""
        counts = [c.usage for c in self.completions]
        return Usage(
            sum(usage.prompt_tokens for usage in counts),
            sum(usage.completion_tokens for usage in counts),
            sum(usage.cached_tokens for usage in counts),
            sum(usage.created_tokens for usage in counts),
        )


@dataclass(slots=True)
class ChatSession:
    """What was said so far, and the documents at hand.

    The documents stand before the latest question and nowhere else, so one that is dropped is gone, and one that
    stays is reused at its new place.

    Attributes:
        documents: One a source, in the order they were added.
        history: Messages up to the last answer, without the documents.
    """

    backend: Backend
    sampling: SamplingParams
    policy: str
    system: str | None = None
    tools: Sequence[ChatTool] = ()
    documents: list[Segment] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    _files: dict[str, Segment] = field(default_factory=dict)

    def add(self, document: Segment) -> None:
        """Take a document; one of the same source makes way for it."""
        self.documents = [*(d for d in self.documents if d.source_id != document.source_id), document]

    def drop(self, source_id: str) -> None:
        """Put a document away.

        Raises:
            InvalidInput: There is none of that source.
        """
        kept = [document for document in self.documents if document.source_id != source_id]
        if len(kept) == len(self.documents):
            names = ", ".join(document.source_id for document in kept) or "none"
            raise InvalidInput(f"no file {source_id} in this conversation; the files: {names}")
        self.documents = kept

    def reset(self) -> None:
        """Forget what was said; the documents stay."""
        self.history.clear()
        self._files.clear()

    def ask(self, question: str) -> Generator[StreamChunk | ToolResult | Turn, None, None]:
        """The answer as it comes: pieces of text, tool results, and the whole turn at the end.

        Closing the iterator cancels the answer. An answer that was cancelled or failed leaves no trace.
        """
        body = "\n\n".join([*(document.text for document in self.documents), question])
        before = [*self._front(), *self.history]
        trace: list[dict[str, Any]] = []
        completions: list[Completion] = []
        results: list[ToolResult] = []
        while True:
            messages = [*before, {"role": "user", "content": body}, *trace]
            is_last = len(completions) + 1 == MAX_CALLS
            completion = None
            with closing(self.backend.stream(self._request(messages, may_call=not is_last))) as chunks:
                for chunk in chunks:
                    completion = chunk.completion or completion
                    yield chunk
            assert completion is not None, "a stream ends with the completion"
            completions.append(completion)
            trace.append(_message(completion))
            if is_last or not completion.tool_calls:
                break
            for call in completion.tool_calls:
                results.append(self._run(call))
                trace.append({"role": "tool", "tool_call_id": call.id, "content": results[-1].text})
                yield results[-1]
        self.history += [{"role": "user", "content": question}, *trace]
        yield Turn(question, tuple(completions), tuple(results))

    def _front(self) -> list[dict[str, Any]]:
        return [] if self.system is None else [{"role": "system", "content": self.system}]

    def _request(self, messages: Sequence[Mapping[str, Any]], *, may_call: bool) -> ChatRequest:
        return ChatRequest(
            messages=messages,
            tools=[tool.spec for tool in self.tools],
            tool_choice="auto" if may_call else "none",
            segments=[*self.documents, *self._files.values()],
            sampling=self.sampling,
            fit_window=True,
            policy=self.policy,
        )

    def _run(self, call: ToolCall) -> ToolResult:
        result = run_tool(self.tools, call)
        if isinstance(result, Segment):
            self._files[result.text] = result
            return ToolResult(call, result.text)
        return ToolResult(call, result)


def _message(completion: Completion) -> dict[str, Any]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
        for call in completion.tool_calls
    ]
    return {"role": "assistant", "content": completion.text} | ({"tool_calls": calls} if calls else {})
