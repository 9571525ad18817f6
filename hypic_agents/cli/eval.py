"""``hypic-agents eval``: answer quality of reuse policies against full recompute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hypic_agents.bench.hardware import hardware_line, with_provenance
from hypic_agents.cli import options
from hypic_agents.cli.explain import explain_answers
from hypic_agents.cli.output import command, show_rows
from hypic_agents.errors import InvalidInput
from hypic_agents.quality.pareto import pareto as make_pareto
from hypic_agents.quality.picture import draw_pareto, draw_sweep, require_matplotlib
from hypic_agents.quality.policies import EVALUATED, pareto_policies, sweep_policies
from hypic_agents.quality.sweep import curve
from hypic_agents.runtime.policy_file import load_policy


def evaluate(
    ctx: typer.Context,
    questions: Annotated[int, typer.Option("--questions", "-n", min=1, help="Questions a task.")] = 400,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="A policy to evaluate, or file:PATH; repeat for several. All by default: "
            + ", ".join(EVALUATED)
            + ".",
        ),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", "-t", help="A task to ask; repeat for several. All by default.")
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Evaluate a range of head seams, with segments built in both ways.")
    ] = False,
    pareto: Annotated[
        bool,
        typer.Option("--pareto", help="Evaluate ways of repair over a range of live tokens; mark the Pareto front."),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="List the answers that one policy (hypic by default) changes, where the needed facts stood, and what "
            "would mend them.",
        ),
    ] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Save what --sweep, --pareto or --explain finds as a picture.")
    ] = None,
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Ask the same questions under each policy and compare the answers with full recompute."""
    with command(as_json=json) as out:
        chosen = [name for name, on in (("--sweep", sweep), ("--pareto", pareto), ("--explain", explain)) if on]
        if len(chosen) > 1:
            raise InvalidInput(f"{chosen[0]} and {chosen[1]} are different evaluations; leave one of them out")
        if policy and (sweep or pareto):
            raise InvalidInput(f"{chosen[0]} chooses the policies itself; leave out --policy")
        if picture and not chosen:
            raise InvalidInput("--picture shows a sweep, a Pareto front or an explanation; add one of these options")
        if picture:
            require_matplotlib()
        if explain:
            explain_answers(
                ctx,
                out,
                questions=questions,
                policies=policy,
                tasks=task,
                picture=picture,
                seed=seed,
                model=model,
                threads=threads,
            )
            return
        presets = sweep_policies() if sweep else pareto_policies() if pareto else tuple(policy or EVALUATED)
        for spec in presets:
            load_policy(spec)
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
        if pareto:
            result |= {"pareto": make_pareto(result)}
        if picture:
            draw = draw_pareto if pareto else draw_sweep
            draw(result, picture, title=f"{model}: {result['questions']} questions")
        result = with_provenance(result, model=model, seconds=time.perf_counter() - started)
        out.result(result, lambda console: _show(console, result))


def _show(console: Console, result: dict[str, Any]) -> None:
    shown = result | {"hardware": hardware_line(result["hardware"])}
    if "curve" in result:
        exact = result["mean"]["exact"]["score"]
        show_rows(console, "Head seam", shown | {"rows": result["curve"], "full_recompute_score": exact})
    elif "pareto" in result:
        at = {f"at_15_percent_{name}": value for name, value in result["pareto"]["at_15_percent"].items()}
        show_rows(console, "Score against live tokens", shown | {"rows": result["pareto"]["points"]} | at)
    else:
        show_rows(console, "Answer quality", shown)
