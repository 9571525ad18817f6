"""``hypic-agents demo``: the same questions under full recompute and under reuse, over documents in changing order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from hypic_agents.cli import options
from hypic_agents.cli.demo_data import DemoData, DemoQuestion, load_demo, shuffled
from hypic_agents.cli.output import command
from hypic_agents.cli.services import Progress
from hypic_agents.completion import Completion
from hypic_agents.core import Prompt, SamplingParams

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

_ANSWER = SamplingParams(max_tokens=40)
_FIRST_TOKEN = SamplingParams(max_tokens=1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question, answered under full recompute and under reuse."""

    question: DemoQuestion
    exact: Completion
    reuse: Completion

    @property
    def same(self) -> bool:
        return self.exact.token_ids == self.reuse.token_ids

    @property
    def speedup(self) -> float:
        return self.exact.report.ttft_s / self.reuse.report.ttft_s if self.reuse.report.ttft_s else 0.0

    def to_dict(self) -> dict[str, Any]:
        report = self.reuse.report
        return {
            "question": self.question.text,
            "expected": self.question.expected,
            "exact": _answer_dict(self.question, self.exact),
            "reuse": _answer_dict(self.question, self.reuse),
            "same_answer": self.same,
            "prompt_tokens": report.prompt_tokens,
            "reused_tokens": report.reused_tokens,
            "speedup": self.speedup,
        }


def is_right(question: DemoQuestion, answer: str) -> bool:
    """Whether the answer is the expected one, white space aside."""
    return answer.split() == question.expected.split()


def demo(
    ctx: typer.Context,
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    policy: options.Policy = "hypic",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Answer questions over documents in changing order, first without reuse, then with it."""
    with command(as_json=json) as out:
        with options.open_engine(ctx, out, model=model, policy=policy, threads=threads) as engine:
            data = load_demo()
            prompts = _prompts(engine, data, seed)
            first = engine.builder.build(
                system=data.system, documents=data.documents[::-1], question=data.questions[0].text
            )
            with out.progress() as progress:
                _warm(engine, data, policy, progress)
                exact = _ask_all(engine, [first, *prompts], "exact", "answering with full recompute", progress)
                reuse = _ask_all(engine, [first, *prompts], policy, f"answering with {policy}", progress)
        outcomes = [Outcome(*row) for row in zip(data.questions, exact, reuse, strict=True)]
        summary = _summary(outcomes)
        result = {
            "model": model,
            "policy": policy,
            "documents": len(data.documents),
            "questions": [outcome.to_dict() for outcome in outcomes],
            "summary": summary,
        }
        out.result(result, lambda console: _show(console, len(data.documents), outcomes, summary))


def _prompts(engine: Engine, data: DemoData, seed: int) -> list[Prompt]:
    """One prompt a question, each with all documents in an order of its own."""
    rng = random.Random(seed)
    return [
        engine.builder.build(
            system=data.system, documents=shuffled(data.documents, question.in_order, rng), question=question.text
        )
        for question in data.questions
    ]


def _warm(engine: Engine, data: DemoData, policy: str, progress: Progress) -> None:
    """Put every document in the store, each in a prompt of its own: entries do not depend on their neighbours."""
    for done, document in enumerate(data.documents):
        progress("building segments", done, len(data.documents))
        prompt = engine.builder.build(system=data.system, documents=[document], question=data.questions[0].text)
        engine.generate(prompt, sampling=_FIRST_TOKEN, policy=policy)
    progress("building segments", len(data.documents), len(data.documents))


def _ask_all(
    engine: Engine, prompts: Sequence[Prompt], policy: str, stage: str, progress: Progress
) -> list[Completion]:
    # The first pass of a process pays for one-off allocations; a prompt that nobody asks carries them.
    first, *prompts = prompts
    engine.generate(first, sampling=_FIRST_TOKEN, policy=policy)
    answers = []
    for done, prompt in enumerate(prompts):
        progress(stage, done, len(prompts))
        answers.append(engine.generate(prompt, sampling=_ANSWER, policy=policy))
    progress(stage, len(prompts), len(prompts))
    return answers


def _answer_dict(question: DemoQuestion, completion: Completion) -> dict[str, Any]:
    return {
        "answer": completion.text.strip(),
        "right": is_right(question, completion.text),
        "ttft_s": completion.report.ttft_s,
    }


def _summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    prompt_tokens = sum(outcome.reuse.report.prompt_tokens for outcome in outcomes)
    reused_tokens = sum(outcome.reuse.report.reused_tokens for outcome in outcomes)
    return {
        "questions": len(outcomes),
        "right_exact": sum(is_right(outcome.question, outcome.exact.text) for outcome in outcomes),
        "right_reuse": sum(is_right(outcome.question, outcome.reuse.text) for outcome in outcomes),
        "same_answers": sum(outcome.same for outcome in outcomes),
        "reused_share": reused_tokens / prompt_tokens if prompt_tokens else 0.0,
        "median_ttft_exact_s": median(outcome.exact.report.ttft_s for outcome in outcomes),
        "median_ttft_reuse_s": median(outcome.reuse.report.ttft_s for outcome in outcomes),
        "median_speedup": median(outcome.speedup for outcome in outcomes),
    }


def _show(console: Console, num_documents: int, outcomes: Sequence[Outcome], summary: dict[str, Any]) -> None:
    table = Table(title=f"{num_documents} documents, a new order for every question")
    for name in ("question", "answer with reuse", "expected"):
        table.add_column(name, overflow="fold")
    for name in ("reused / prompt", "ttft reuse", "ttft full", "speedup"):
        table.add_column(name, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(*_row(outcome))
    console.print(table)
    differing = [outcome for outcome in outcomes if not outcome.same]
    for outcome in differing:
        console.print(
            f"≠ full recompute answered {outcome.exact.text.strip()!r} to: {outcome.question.text}", markup=False
        )
    console.print(
        f"{summary['right_reuse']} of {summary['questions']} right with reuse, {summary['right_exact']} with full "
        f"recompute; {summary['same_answers']} answers identical. {summary['reused_share']:.0%} of the prompt tokens "
        f"reused; median time to first token {summary['median_ttft_reuse_s'] * 1000:.0f} ms against "
        f"{summary['median_ttft_exact_s'] * 1000:.0f} ms ({summary['median_speedup']:.1f}x)."
    )


def _row(outcome: Outcome) -> tuple[str, ...]:
    report = outcome.reuse.report
    right = is_right(outcome.question, outcome.reuse.text)
    return (
        outcome.question.text,
        outcome.reuse.text.strip() + ("" if outcome.same else " [yellow]≠[/]"),
        f"[green]✓[/] {outcome.question.expected}" if right else f"[red]✗[/] {outcome.question.expected}",
        f"{report.reused_tokens} / {report.prompt_tokens}",
        f"{report.ttft_s * 1000:.0f} ms",
        f"{outcome.exact.report.ttft_s * 1000:.0f} ms",
        f"{outcome.speedup:.1f}x",
    )
