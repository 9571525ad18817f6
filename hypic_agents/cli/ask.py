"""``hypic-agents ask``: one question over files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hypic_agents.cli import options
from hypic_agents.cli.documents import read_documents
from hypic_agents.cli.output import Output, command
from hypic_agents.completion import Completion
from hypic_agents.core import Prompt, SamplingParams

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine


def ask(
    ctx: typer.Context,
    question: Annotated[str, typer.Argument(help="What to answer from the documents.")],
    doc: Annotated[list[Path] | None, typer.Option("--doc", "-d", help="A text file; repeat for several.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="System prompt; the model's own by default.")] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest answer, in tokens.")] = 64,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")] = 0.0,
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    policy: options.Policy = "hypic",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Answer a question over documents, and say what was reused."""
    with command(as_json=json) as out:
        documents = read_documents(doc or [])
        with options.open_engine(ctx, out, model=model, policy=policy, threads=threads) as engine:
            prompt = engine.builder.build(system=system, documents=documents, question=question)
            sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
            completion = _answer(engine, prompt, sampling, policy, out)
        out.result(_as_dict(question, completion), lambda console: _show(console, completion))


def _answer(engine: Engine, prompt: Prompt, sampling: SamplingParams, policy: str, out: Output) -> Completion:
    if out.as_json:
        return engine.generate(prompt, sampling=sampling, policy=policy)
    completion: Completion | None = None
    for chunk in engine.stream(prompt, sampling=sampling, policy=policy):
        out.console.print(chunk.text, end="", markup=False, soft_wrap=True)
        completion = chunk.completion or completion
    out.console.print()
    assert completion is not None, "a stream ends with the completion"
    return completion


def _as_dict(question: str, completion: Completion) -> dict[str, Any]:
    return {
        "question": question,
        "answer": completion.text,
        "finish_reason": completion.finish_reason,
        "usage": completion.usage,
        "report": completion.report,
    }


def _show(console: Console, completion: Completion) -> None:
    report = completion.report
    if report.spans:
        table = Table(title="Segments")
        for name in ("source", "kind", "state", "tokens", "composed", "why live"):
            table.add_column(name, justify="right" if name in ("tokens", "composed") else "left")
        for span in report.spans:
            table.add_row(
                span.source_id or "-",
                span.kind,
                span.state,
                str(span.end - span.start),
                str(span.composed_tokens),
                span.reason,
            )
        console.print(table)
    console.print(
        f"{report.reused_tokens} of {report.prompt_tokens} prompt tokens reused ({report.reused_share:.0%}), "
        f"{report.cold_tokens} built first, {report.live_tokens} live, "
        f"first token after {report.ttft_s * 1000:.0f} ms, policy {report.policy}",
        markup=False,
    )
