"""The answer to a request, what it cost and what it reused, in frozen values. No torch, no framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hypic_agents.calls import InvalidToolCall, ToolCall, ToolCallDelta
from hypic_agents.core import SegmentKind, VolatileText

FinishReason = Literal["stop", "length", "cancelled", "error"]
SpanState = Literal["hit", "cold", "live"]

AUDIT_REASON = "audit: "
"""Begins the ``SpanReport.reason`` of segments that a fallback of the shadow audit keeps live."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. ``prompt_tokens`` includes ``cached_tokens``."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    created_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class SpanReport:
    """What happened to one segment of the prompt.

    ``state`` is "hit" (its entry was in the store, or a checkpoint held it), "cold" (built for this request, then
    composed) or "live" (computed in place); ``composed_tokens`` of its tokens were not computed in place; ``reason``
    says why a segment stayed live, or that it came with a checkpoint.
    """

    kind: SegmentKind
    source_id: str
    start: int
    end: int
    state: SpanState
    composed_tokens: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ColdBuilds:
    """Where the entries were computed that one request had to build.

    Attributes:
        local: Computed in the engine's own process.
        workers: Computed by workers of the cold prefill pool (``EngineConfig.cold_prefill``).
        retries: How often one was begun again, because a worker was lost, late, or returned damaged data.
        problems: Why, each reason once.
    """

    local: int = 0
    workers: int = 0
    retries: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReuseReport:
    """What one request reused, and what it cost.

    Attributes:
        policy: Name of the reuse policy.
        prompt_tokens: ``live_tokens + cold_tokens + reused_tokens``.
        live_tokens: Computed for this request.
        cold_tokens: Composed from entries that this request had to build first.
        reused_tokens: Composed from entries that were there already, or part of ``prefix_tokens``.
        prefix_tokens: The prompt's first tokens, taken as a whole from a checkpoint of an earlier request.
        spans: What happened to each segment.
        ttft_s: Seconds from submission to the first token.
        build_s: Seconds of these that went into building entries.
        audited: Chosen to be recomputed in full while the engine is idle (``EngineConfig.audit_share``).
        volatile: Text kept out of the segments, because it changes with every request.
        builds: Where cold entries were computed, and what went wrong with it.
    """

    policy: str
    prompt_tokens: int
    live_tokens: int
    cold_tokens: int
    reused_tokens: int
    spans: tuple[SpanReport, ...] = ()
    ttft_s: float = 0.0
    build_s: float = 0.0
    audited: bool = False
    volatile: tuple[VolatileText, ...] = ()
    prefix_tokens: int = 0
    builds: ColdBuilds = ColdBuilds()

    @property
    def fallback(self) -> tuple[SegmentKind, ...]:
        """Kinds that stayed live because the shadow audit no longer trusts their reuse; see the spans' reasons."""
        return tuple(dict.fromkeys(span.kind for span in self.spans if span.reason.startswith(AUDIT_REASON)))

    @property
    def reused_share(self) -> float:
        """Share of the prompt's tokens that were in the store already, between 0 and 1."""
        return self.reused_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to one request.

    From an :class:`Engine`, ``text`` is all that the model wrote. From a :class:`Backend`, it is what the reader sees:
    ``reasoning`` and tool calls are taken out of it.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    report: ReuseReport
    tool_calls: tuple[ToolCall, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    reasoning: str = ""
    invalid_tool_calls: tuple[InvalidToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A piece of a streamed answer; the last one carries the whole ``completion``.

    The ``text`` of all chunks, joined, is the completion's text; the same holds for ``reasoning``.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    completion: Completion | None = None
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
