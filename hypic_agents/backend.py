"""What an integration asks of a model, wherever it runs: the one contract between frameworks and engines.

::

    ChatHypic, HypicLLM  ->  ChatRequest  ->  Backend  ->  Completion, or StreamChunks whose last one carries it
                                              |- EmbeddedBackend   an engine in this process
                                              |- SGLangBackend     a server
                                              '- FakeBackend       scripted, for tests

A backend is safe to share between threads and event loops. Frameworks translate to these values and back; they never
see what lies behind.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hypic_agents.completion import Completion, StreamChunk
from hypic_agents.core import Grammar, SamplingParams, Scope, Segment
from hypic_agents.errors import InvalidInput

if TYPE_CHECKING:
    from hypic_agents.runtime.policy import ReusePolicy

TOOL_CHOICES = ("auto", "none", "required")

_GREEDY = SamplingParams()
_DEFAULT_SCOPE = Scope()


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a backend knows of its model.

    Attributes:
        name: As the user wrote it: ``tiny``, a path, a hub name, a served name.
        provider: Who answers: "hypic" for the embedded engine, "sglang" for a server.
        window: Most tokens of prompt and answer together.
        fingerprint: Names weights, dtype and adapter; answers with different fingerprints are not comparable.
        tools: Whether the chat template renders tool specs and calls.
        structured_output: Whether answers can be held to a grammar.
        reasoning: Whether the model writes its reasoning apart from the answer.
    """

    name: str
    provider: str
    window: int
    fingerprint: str = ""
    tools: bool = True
    structured_output: bool = True
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question to a chat model.

    Attributes:
        messages: OpenAI's shape: ``role``, ``content`` (text or text blocks), ``tool_calls``, ``tool_call_id``,
            ``name``.
        tools: Specs in OpenAI's shape: ``{"type": "function", "function": {"name", "description", "parameters"}}``.
        tool_choice: "auto", "none" (the tools are not even shown), "required", or the name of one of the tools.
        parallel_tool_calls: Whether one answer may hold several calls.
        response_format: OpenAI's: None, ``{"type": "text"}``, ``{"type": "json_object"}`` (optionally with a "schema"),
            or ``{"type": "json_schema", "json_schema": {"name", "schema", "strict"}}``.
        segments: Hints: texts that may stand in the messages verbatim, and are worth reusing. They never change the
            prompt's token ids, only what is reused.
        sampling: Its ``grammar`` is left None; :func:`grammar_of` derives it.
        fit_window: Lower ``sampling.max_tokens`` to what the window leaves, rather than refuse the request.
        policy: Reuse policy; None for the backend's own.
        scope: Whose segments these are, where a segment names no scope of its own.
        timeout_s: Seconds until :class:`RequestTimeout`, counted from the call; loading the model does not count.
        max_retries: How often a backend that reaches over a network tries again before anything was streamed.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True
    response_format: Mapping[str, Any] | None = None
    segments: Sequence[Segment] = ()
    sampling: SamplingParams = _GREEDY
    fit_window: bool = False
    policy: ReusePolicy | str | None = None
    scope: Scope = _DEFAULT_SCOPE
    timeout_s: float | None = None
    max_retries: int = 0

    def __post_init__(self) -> None:
        names = [str(tool.get("function", tool).get("name")) for tool in self.tools]
        if self.tool_choice not in (*TOOL_CHOICES, *names):
            known = ", ".join(names) or "none are given"
            raise InvalidInput(f"tool_choice={self.tool_choice!r} names no tool; the tools: {known}")
        if self.tool_choice == "required" and not names:
            raise InvalidInput("tool_choice='required' needs tools; give some or drop it")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise InvalidInput(f"timeout_s={self.timeout_s}: use a number of seconds above 0, or None")

    @property
    def shown_tools(self) -> Sequence[Mapping[str, Any]]:
        """The tools that the prompt shows."""
        return () if self.tool_choice == "none" else self.tools


def grammar_of(request: ChatRequest) -> Grammar | None:
    """What the answer is held to: calls of tools, a JSON answer, or either; None for free text.

    Raises:
        InvalidInput: An unknown ``response_format``.
    """
    answer = _answer_grammar(request.response_format)
    if not request.shown_tools:
        return answer
    spec = {
        "tools": [dict(tool) for tool in request.tools],
        "choice": request.tool_choice,
        "parallel": request.parallel_tool_calls,
    }
    if answer is not None and request.tool_choice == "auto":
        spec["answer"] = json.loads(answer.spec) if answer.spec else {"type": "object"}
    return Grammar("tool_calls", _canonical(spec))


def _answer_grammar(response_format: Mapping[str, Any] | None) -> Grammar | None:
    form = response_format or {}
    kind = form.get("type", "text")
    if kind == "text":
        return None
    holder = form.get("json_schema") if kind == "json_schema" else form
    schema = holder.get("schema") if isinstance(holder, Mapping) else None
    if kind in ("json_object", "json_schema") and isinstance(schema, Mapping):
        return Grammar("json_schema", _canonical(schema))
    if kind == "json_object":
        return Grammar("json_object")
    raise InvalidInput(
        f"response_format={str(response_format)[:200]}: use type 'text', 'json_object', or 'json_schema' with "
        "json_schema={'name': ..., 'schema': ...}"
    )


def _canonical(value: Any) -> str:
    # Key order is kept: a grammar makes the model write properties in the order of the schema.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@runtime_checkable
class Backend(Protocol):
    """Answers chat requests. Every verb that waits has an async twin that never blocks the event loop.

    Errors are those of :mod:`hypic_agents.errors`; a request that fails touches no other.
    """

    @property
    def loaded(self) -> bool:
        """Whether :meth:`model_info` answers at once, without loading a model or asking a server."""
        ...

    def model_info(self) -> ModelInfo:
        """What is known of the model; may take as long as loading it."""
        ...

    def generate(self, request: ChatRequest) -> Completion: ...

    async def agenerate(self, request: ChatRequest) -> Completion:
        """Cancelling the awaiting task cancels the request."""
        ...

    def stream(self, request: ChatRequest) -> Generator[StreamChunk, None, None]:
        """Chunks as they come; the last carries the completion. Closing the generator cancels the request."""
        ...

    def astream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk, None]:
        """As :meth:`stream`, for ``async for``."""
        ...

    def warm(self, requests: Sequence[ChatRequest]) -> int:
        """Compute what these requests could reuse, and answer nothing; returns how many entries are new."""
        ...

    async def awarm(self, requests: Sequence[ChatRequest]) -> int: ...

    def invalidate(
        self,
        *,
        source_id: str | None = None,
        version_before: str | None = None,
        tenant: str | None = None,
        group: str | None = None,
    ) -> int:
        """Forget entries before returning; returns how many."""
        ...

    async def ainvalidate(
        self,
        *,
        source_id: str | None = None,
        version_before: str | None = None,
        tenant: str | None = None,
        group: str | None = None,
    ) -> int: ...

    def token_ids(self, text: str) -> list[int]:
        """Ids of ``text`` as content, without control tokens."""
        ...

    def count_tokens(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """Length of the prompt that these make, template included."""
        ...

    def close(self) -> None:
        """Cancel what runs and free the model; later calls raise :class:`EngineClosed`."""
        ...

    async def aclose(self) -> None: ...
