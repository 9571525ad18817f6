"""One running request: the only mutable object of the loop."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from hypic_agents.calls import InvalidToolCall, ToolCall
from hypic_agents.completion import AUDIT_REASON, Completion, FinishReason, ReuseReport, SpanReport, SpanState, Usage
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import HypicError
from hypic_agents.prompt.tool_calls import parse_tool_calls
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.detokenize import Detokenizer
from hypic_agents.runtime.grammar_state import GrammarState
from hypic_agents.runtime.plan import Plan, ReusedSpan
from hypic_agents.runtime.prefix_beginning import Continuation
from hypic_agents.runtime.state import RowState

_ids = count(1)
_ROOM = 64


@dataclass(slots=True, eq=False)
class Request:
    """From ``submit`` to its completion.

    Attributes:
        state: Layer states after prefill, continued by decode; None before, and once a finished request was retired.
        continuation: The checkpoint that it continues from, and as what it leaves others; None until looked up.
        grammar: Where the answer stands in its grammar; None without one, and when finished.
        pieces: Text that may be shown and was not taken yet.
        completion: Set when finished; ``error`` instead when the request failed.
    """

    prompt: Prompt
    plan: Plan
    sampling: SamplingParams
    generator: torch.Generator | None
    detokenizer: Detokenizer
    eos_token_ids: frozenset[int]
    grammar: GrammarState | None = None
    id: int = field(default_factory=lambda: next(_ids))
    submitted_s: float = field(default_factory=time.perf_counter)
    state: RowState | None = None
    continuation: Continuation | None = None
    token_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    report: ReuseReport | None = None
    completion: Completion | None = None
    error: HypicError | None = None

    @property
    def room(self) -> int:
        """Tokens behind the prompt for which memory is set aside with the prompt's own; more is made when needed."""
        return min(self.sampling.max_tokens, _ROOM)

    @property
    def done(self) -> bool:
        return self.completion is not None or self.error is not None

    def settle(self, token_id: int) -> int:
        """The token to push for the one that was chosen: another where the grammar has to bring the answer to an end.

        A grammar that cannot be followed any further fails the request.
        """
        if self.grammar is None:
            return token_id
        try:
            if token_id in self.eos_token_ids and not self.grammar.closing:
                self.grammar.end()
                return token_id
            return self.grammar.accept(token_id, self.sampling.max_tokens - len(self.token_ids))
        except HypicError as error:
            self.fail(error)
            return token_id

    def push(self, token_id: int) -> None:
        """Take the next token; finishes the request where it ends. Does nothing to one that failed."""
        if self.done:
            return
        if token_id in self.eos_token_ids:
            self.finish("length" if self.grammar is not None and self.grammar.closing else "stop")
            return
        self.token_ids.append(token_id)
        self._show(self.detokenizer.push(token_id))
        if self.detokenizer.stopped:
            self.finish("stop")
        elif self.grammar is not None and self.grammar.ended:
            self.finish("length" if self.grammar.closing else "stop")
        elif len(self.token_ids) >= self.sampling.max_tokens:
            self.finish("length")

    @property
    def num_settled(self) -> int:
        """Tokens about which the grammar leaves no choice now; many where it leads the answer to its end."""
        return 0 if self.grammar is None else self.grammar.num_settled

    def push_settled(self) -> None:
        """Take the tokens about which the grammar leaves no choice: they need no pass of their own."""
        while self.grammar is not None and not self.done:
            token_id = self.grammar.forced
            if token_id is None:
                return
            self.push(self.settle(token_id))

    def finish(self, reason: FinishReason) -> None:
        """Close the request. One that was cancelled drops its states; another may leave a checkpoint."""
        assert self.report is not None or reason == "cancelled"
        self._show(self.detokenizer.finish())
        if reason == "cancelled":
            self.state = self.continuation = None
        report = self.report or ReuseReport(
            self.plan.policy.name, len(self.prompt), 0, 0, 0, volatile=self.prompt.volatile
        )
        usage = Usage(len(self.prompt), len(self.token_ids), report.reused_tokens, report.cold_tokens)
        held = self.sampling.grammar
        tools = json.loads(held.spec)["tools"] if held is not None and held.kind == "tool_calls" else ()
        text, calls = self.detokenizer.text, parse_tool_calls(self.detokenizer.text, tools)
        metadata: dict[str, Any] = {}
        invalid: tuple[InvalidToolCall, ...] = ()
        if self.grammar is not None:
            complete = self.grammar.complete and not self.detokenizer.stopped
            metadata["grammar"] = {"complete": complete, "forced_tokens": self.grammar.num_forced}
            if self.grammar.num_forced:
                # Its text is well formed, but the model did not mean it to end there: nobody should act on it unasked.
                calls, invalid = (), tuple(map(_cut_call, calls))
            self.grammar = None
        self.completion = Completion(
            text, tuple(self.token_ids), reason, usage, report, calls, metadata, invalid_tool_calls=invalid
        )

    def fail(self, error: HypicError) -> None:
        self.state = self.continuation = None
        self.grammar = None
        self.error = error

    def _show(self, piece: str) -> None:
        if piece:
            self.pieces.append(piece)


def _cut_call(call: ToolCall) -> InvalidToolCall:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return InvalidToolCall(call.name, arguments, call.id, "the call was cut short: the model did not come to its end")


def make_report(
    plan: Plan,
    prompt: Prompt,
    model: str,
    used: set[SegmentKey],
    cold: set[SegmentKey],
    ttft_s: float,
    build_s: float,
    prefix_len: int = 0,
) -> ReuseReport:
    """What a request reused.

    Args:
        plan: Its plan.
        prompt: Its prompt.
        model: Fingerprint in keys.
        used: Keys of the entries that its assembly took.
        cold: Those of them that were built for it.
        ttft_s: Seconds from submission to the first token.
        build_s: Seconds of these spent building entries.
        prefix_len: First tokens that were taken from a checkpoint.
    """
    spans: list[SpanReport] = []
    totals: dict[SpanState, int] = {"hit": prefix_len, "cold": 0, "live": 0}
    for note in plan.notes:
        segment, reason = note.span.segment, note.reason
        composed: dict[SpanState, int] = {}
        for one in note.pieces:
            key = one.build.key(model)
            if key in used and one.start >= prefix_len:
                how: SpanState = "cold" if key in cold else "hit"
                composed[how] = composed.get(how, 0) + one.end - one.start
        for how, tokens in composed.items():
            totals[how] += tokens
        if note.span.start < prefix_len:
            composed["hit"] = composed.get("hit", 0) + min(note.span.end, prefix_len) - note.span.start
            # What an audit made fall back stays told: it was computed live when the checkpoint was made, too.
            reason = reason if reason.startswith(AUDIT_REASON) else "taken from a checkpoint, with all before it"
        elif note.reused is not None and not composed:
            reason = "not in the store behind this beginning"
        state: SpanState = "cold" if "cold" in composed else "hit" if composed else "live"
        spans.append(
            SpanReport(
                segment.kind,
                segment.source_id,
                note.span.start,
                note.span.end,
                state,
                sum(composed.values()),
                reason,
            )
        )
    return ReuseReport(
        policy=plan.policy.name,
        prompt_tokens=len(prompt),
        live_tokens=len(prompt) - totals["hit"] - totals["cold"],
        cold_tokens=totals["cold"],
        reused_tokens=totals["hit"],
        spans=tuple(spans),
        ttft_s=ttft_s,
        build_s=build_s,
        volatile=prompt.volatile,
        prefix_tokens=prefix_len,
    )


def reused_keys(plan: Plan, model: str, start: int = 0) -> set[SegmentKey]:
    """Keys of the entries that a request takes from prompt position ``start`` on."""
    return {span.build.key(model) for span in plan.spans if isinstance(span, ReusedSpan) and span.start >= start}
