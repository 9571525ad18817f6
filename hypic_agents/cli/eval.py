"""``hypic-agents eval``: answer quality of reuse policies against full recompute."""

from __future__ import annotations

from typing import Annotated

import typer

from hypic_agents.cli import options
from hypic_agents.cli.output import command, show_rows
from hypic_agents.runtime.policy import PRESETS, parse_policy


def evaluate(
    ctx: typer.Context,
    questions: Annotated[int, typer.Option("--questions", "-n", min=1, help="Questions a task.")] = 100,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", "-p", help=f"A policy to evaluate; repeat for several. All by default: {', '.join(PRESETS)}."
        ),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", "-t", help="A task to ask; repeat for several. All by default.")
    ] = None,
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Ask the same questions under each policy and compare the answers with full recompute."""
    with command(as_json=json) as out:
        presets = tuple(policy or PRESETS)
        for spec in presets:
            parse_policy(spec)
        with (
            options.open_engine(ctx, out, model=model, policy="hypic", threads=threads) as engine,
            out.progress() as progress,
        ):
            result = ctx.obj.run_eval(
                engine,
                questions_per_task=questions,
                presets=presets,
                tasks=tuple(task) if task else None,
                seed=seed,
                progress=progress,
            )
        out.result(result, lambda console: show_rows(console, "Answer quality", result))
