"""``hypic-agents calibrate``: the cheapest reuse policy that holds on the user's own prompts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hypic_agents.bench.hardware import hardware_line, with_provenance
from hypic_agents.cli import options
from hypic_agents.cli.output import command
from hypic_agents.errors import InvalidInput
from hypic_agents.quality.calibrate.candidates import make_candidates
from hypic_agents.quality.calibrate.prompts import read_prompts
from hypic_agents.quality.calibrate.request import BUDGET, CONFIDENCE, MAX_TOKENS, check_request
from hypic_agents.quality.calibrate.sample import write_sample
from hypic_agents.runtime.policy_file import check_writable, write_policy_file

_SHOWN_CHANGES = 20


def calibrate(
    ctx: typer.Context,
    prompts: Annotated[Path, typer.Option("--prompts", help="JSON lines: one prompt a line, with or without answer.")],
    gap_budget: Annotated[
        float, typer.Option("--gap-budget", help="Largest gap to full recompute, in points.")
    ] = BUDGET,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Probability of staying within it on as many other prompts.")
    ] = CONFIDENCE,
    candidates: Annotated[
        list[str] | None,
        typer.Option("--candidates", "-c", help="A policy to try besides the ladder; may be repeated."),
    ] = None,
    ladder: Annotated[bool, typer.Option(help="Try the built-in ladder of policies.")] = True,
    out_file: Annotated[Path, typer.Option("--out", help="The policy file to write.")] = Path("hypic-policy.json"),
    validate: Annotated[
        int, typer.Option("--validate", min=0, help="Choose on a random half, measure on the other, so many times.")
    ] = 0,
    sample: Annotated[
        int,
        typer.Option(
            "--sample", min=0, help="Only write so many sample questions of each kind to --prompts, and stop."
        ),
    ] = 0,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=1, help="Longest answer of prompts that come without one.")
    ] = MAX_TOKENS,
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Choose the cheapest reuse policy that answers your prompts as full recompute does, and write it to a file."""
    with command(as_json=json) as out:
        if sample:
            written = write_sample(prompts, sample, seed)
            out.result(
                {"prompts": str(prompts), "written": written},
                lambda console: console.print(
                    f"{written} prompts written to {prompts}; now: hypic-agents calibrate --prompts {prompts}",
                    markup=False,
                    soft_wrap=True,
                ),
            )
            return
        if not ladder and not candidates:
            raise InvalidInput("--no-ladder leaves nothing to try; add --candidates")
        records = read_prompts(prompts)
        check_request(budget=gap_budget, confidence=confidence, splits=validate, prompts=len(records))
        policies = make_candidates(candidates or (), ladder=ladder)
        check_writable(out_file)
        started = time.perf_counter()
        with (
            options.open_engine(ctx, out, model=model, policy="exact", threads=threads) as engine,
            out.progress() as progress,
        ):
            result, content = ctx.obj.run_calibrate(
                engine,
                records,
                policies,
                budget=gap_budget,
                confidence=confidence,
                splits=validate,
                seed=seed,
                max_tokens=max_tokens,
                progress=progress,
            )
        write_policy_file(out_file, content)
        result = with_provenance(result, model=model, seconds=time.perf_counter() - started) | {"out": str(out_file)}
        out.result(result, lambda console: _show(console, result))


def _show(console: Console, result: dict[str, Any]) -> None:
    console.print(_candidates(result))
    if result["changed"]:
        console.print(_changed(result))
        if len(result["changed"]) > _SHOWN_CHANGES:
            console.print(f"{len(result['changed']) - _SHOWN_CHANGES} more with --json")
    if "validation" in result:
        _show_validation(console, result["validation"], result["gap_budget"])
    console.print(result["sentence"], markup=False, soft_wrap=True)
    console.print(
        f"Written to {result['out']}; use it with --policy file:{result['out']}, or "
        f"EngineConfig(policy='file:{result['out']}').",
        markup=False,
        soft_wrap=True,
    )
    console.print(f"{result['seconds']:.0f} s on {hardware_line(result['hardware'])}", markup=False, soft_wrap=True)


def _candidates(result: dict[str, Any]) -> Table:
    answers = "answers" if result["with_answers"] == result["prompts"] else f"answers to {result['with_answers']}"
    table = Table(
        title=f"{result['prompts']} prompts, {answers}; at most {result['gap_budget']:g} points with "
        f"{result['confidence']:.0%}"
    )
    table.add_column("policy", overflow="fold")
    for name in ("live", "gap", "95 %", "lost", "won", "same answer", "KL", "bound", "sure"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in result["rows"]:
        table.add_row(
            row["policy"],
            f"{row['live_share']:.0%}",
            f"{row['gap_points']:.2f}",
            f"{row['gap_low']:.2f} to {row['gap_high']:.2f}",
            str(row["lost"]),
            str(row["won"]),
            f"{row['agreement']:.1%}",
            f"{row['kl']:.2g}",
            f"{row['bound_points']:.2f}",
            f"{row['certainty']:.1%}",
            row["verdict"],
            style="bold" if row["verdict"] == "chosen" else None,
        )
    return table


def _changed(result: dict[str, Any]) -> Table:
    table = Table(title=f"Prompts answered otherwise under {result['policy']}: {len(result['changed'])}")
    for name in ("line", "question", "full recompute", "with reuse", "effect"):
        table.add_column(name, overflow="fold", justify="right" if name == "line" else "left")
    for change in result["changed"][:_SHOWN_CHANGES]:
        cells = (change["question"], change["full_recompute"], change["policy"], change["effect"])
        table.add_row(str(change["line"]), *(escape(cell) for cell in cells))
    return table


def _show_validation(console: Console, validation: dict[str, Any], budget: float) -> None:
    table = Table(title="Chosen on one half, measured on the other")
    table.add_column("policy", overflow="fold")
    for name in ("live", "sure", "gap seen", "gap held out"):
        table.add_column(name, justify="right")
    table.add_column("held")
    for split in validation["splits"]:
        table.add_row(
            split["policy"],
            f"{split['live_share']:.0%}",
            f"{split['certainty']:.1%}",
            f"{split['seen_gap']:.2f}",
            f"{split['heldout_gap']:.2f}",
            "yes" if split["held"] else "no",
        )
    console.print(table)
    console.print(
        f"Within {budget:g} points in {validation['held']} of {validation['of']} splits; a half has "
        f"{validation['heldout_prompts']} prompts, one answer is {validation['points_per_answer']:.2f} points."
    )
