"""What the examples share: a backend that measures every request, and the tables they print.

An application would write ``ChatHypic(model="tiny")`` or ``HypicLLM(model="tiny")`` and need none of this.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console
from rich.table import Table

from hypic_agents import ChatRequest, Completion, EmbeddedBackend, Engine, EngineConfig, SamplingParams


@dataclass(frozen=True, slots=True)
class Call:
    """One answer of the model, and how long full recompute of the same prompt takes to the first token (seconds)."""

    completion: Completion
    full_ttft_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One question or task: what came of it, and the calls of the model that it took."""

    question: str
    answer: str
    calls: tuple[Call, ...]

    @property
    def reused_tokens(self) -> int:
        return sum(call.completion.report.reused_tokens for call in self.calls)

    @property
    def prompt_tokens(self) -> int:
        return sum(call.completion.report.prompt_tokens for call in self.calls)


class Meter(EmbeddedBackend):
    """Answers with reuse; behind each answer it computes the first token of the same prompt without any."""

    def __init__(self, model: str, threads: int | None = None) -> None:
        super().__init__(partial(Engine.load, model, EngineConfig(threads=threads)))
        self._calls: list[Call] = []

    def warm_up(self) -> None:
        """The first passes of a process pay for one-off allocations: let no answer carry them."""
        request = ChatRequest([{"role": "user", "content": "Hello. " * 100}], sampling=SamplingParams(max_tokens=2))
        for policy in ("hypic", "exact"):
            super().generate(replace(request, policy=policy))

    def generate(self, request: ChatRequest) -> Completion:
        completion = super().generate(request)
        full = replace(
            request,
            policy="exact",
            sampling=replace(request.sampling, max_tokens=1),
            # The prompt is the same; what the answer is held to does not matter to its first token's time.
            tool_choice="none" if request.tool_choice == "none" else "auto",
            response_format=None,
        )
        self._calls.append(Call(completion, super().generate(full).report.ttft_s))
        return completion

    def row(self, question: str, answer: str) -> Row:
        """A row of all calls since the last row."""
        calls, self._calls = tuple(self._calls), []
        return Row(question, answer.strip(), calls)


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all examples have."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--model", default="tiny", help="'tiny', a directory or a hub name (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    parser.add_argument("--max-tokens", type=int, default=48, help="longest answer (default: %(default)s)")
    return parser


def add_plan(parser: argparse.ArgumentParser) -> None:
    """``--plan``, for examples whose steps the bundled model is too small to choose."""
    parser.add_argument("--plan", choices=("script", "model"), help="who decides on the steps (default: see above)")


def is_scripted(options: argparse.Namespace) -> bool:
    return bool((options.plan or ("script" if options.model == "tiny" else "model")) == "script")


def show(title: str, rows: Sequence[Row]) -> None:
    """Answers, what they reused, and the time to the first token, summed over the calls of a row."""
    table = Table(title=title)
    for name in ("asked", "answered"):
        table.add_column(name, overflow="fold")
    for name in ("calls", "reused / prompt", "built", "first token", "in full", "speedup"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        reports = [call.completion.report for call in row.calls]
        ttft_s, full_s = sum(report.ttft_s for report in reports), sum(call.full_ttft_s for call in row.calls)
        table.add_row(
            row.question,
            row.answer,
            str(len(row.calls)),
            f"{row.reused_tokens} / {row.prompt_tokens}",
            str(sum(report.cold_tokens for report in reports)),
            f"{ttft_s * 1000:.0f} ms",
            f"{full_s * 1000:.0f} ms",
            f"{full_s / ttft_s:.1f}x" if ttft_s else "-",
        )
    _console().print(table)


def show_segments(call: Call) -> None:
    """What became of every segment of one prompt."""
    report = call.completion.report
    table = Table(title=f"the last prompt, {report.prompt_tokens} tokens, by segment")
    for name in ("segment", "kind", "state", "tokens", "reused", "note"):
        table.add_column(name, justify="right" if name in ("tokens", "reused") else "left")
    for span in report.spans:
        size = str(span.end - span.start)
        table.add_row(span.source_id or "-", span.kind, span.state, size, str(span.composed_tokens), span.reason)
    for text in report.volatile:
        table.add_row("-", "volatile", "live", str(text.end - text.start), "0", f"{text.reason}: {text.text}")
    _console().print(table)


def _console() -> Console:
    # Wide enough for the tables where the output is a pipe or a file.
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=140)
