"""``hypic-agents eval``: answer quality of reuse policies against full recompute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hypic_agents.bench.hardware import hardware_line, with_provenance
from hypic_agents.cli import options
from hypic_agents.cli.output import command, show_rows
from hypic_agents.errors import InvalidInput
from hypic_agents.quality.picture import draw_sweep, require_matplotlib
from hypic_agents.quality.policies import EVALUATED, sweep_policies
from hypic_agents.quality.sweep import curve
from hypic_agents.runtime.policy import parse_policy


def evaluate(
    ctx: typer.Context,
    questions: Annotated[int, typer.Option("--questions", "-n", min=1, help="Questions a task.")] = 400,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", "-p", help=f"A policy to evaluate; repeat for several. All by default: {', '.join(EVALUATED)}."
        ),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", "-t", help="A task to ask; repeat for several. All by default.")
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Evaluate a range of head seams, with segments built in both ways.")
    ] = False,
    picture: Annotated[Path | None, typer.Option("--picture", help="Save the sweep's curve as this picture.")] = None,
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Ask the same questions under each policy and compare the answers with full recompute."""
    with command(as_json=json) as out:
        if sweep and policy:
            raise InvalidInput("--sweep chooses the policies itself; leave out --policy")
        if picture and not sweep:
            raise InvalidInput("--picture shows a sweep; add --sweep")
        if picture:
            require_matplotlib()
        presets = sweep_policies() if sweep else tuple(policy or EVALUATED)
        for spec in presets:
            parse_policy(spec)
        started = time.perf_counter()
        with (
            options.open_engine(ctx, out, model=model, policy="hypic", threads=threads) as engine,
            out.progress() as progress,
        ):
            result: dict[str, Any] = ctx.obj.run_eval(
                engine,
                questions_per_task=questions,
                presets=presets,
                tasks=tuple(task) if task else None,
                seed=seed,
                progress=progress,
            )
        if sweep:
            result |= {"curve": curve(result)}
        if picture:
            draw_sweep(result, picture, title=f"{model}: {result['questions']} questions")
        result = with_provenance(result, model=model, seconds=time.perf_counter() - started)
        out.result(result, lambda console: _show(console, result))


def _show(console: Console, result: dict[str, Any]) -> None:
    shown = result | {"hardware": hardware_line(result["hardware"])}
    if "curve" in result:
        exact = result["mean"]["exact"]["score"]
        show_rows(console, "Head seam", shown | {"rows": result["curve"], "full_recompute_score": exact})
    else:
        show_rows(console, "Answer quality", shown)
