"""``hypic-agents bench churn`` and ``bench memory``: what the store does under pressure, and what segments take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from hypic_agents.bench.hardware import hardware_line, with_provenance
from hypic_agents.cli import options
from hypic_agents.cli.output import command, show_rows
from hypic_agents.cli.services import Progress

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

# What a compaction must reach: states and transitions in this share of float32, the mean gap changed by so many points.
_MOST_STATES: Final = 0.35
_MOST_POINTS: Final = 0.1


def churn(
    ctx: typer.Context,
    requests: Annotated[int, typer.Option("--requests", min=1, help="Requests of the trace.")] = 2_000,
    documents: Annotated[int, typer.Option("--documents", min=1, help="Documents that may come again.")] = 500,
    one_offs: Annotated[
        float, typer.Option("--one-offs", min=0, max=1, help="Share of requests for a document that never comes again.")
    ] = 0.05,
    updates: Annotated[
        float, typer.Option("--updates", min=0, max=1, help="Chance that a document changes before a request.")
    ] = 0.02,
    budget: Annotated[
        float, typer.Option("--budget", min=0, max=1, help="Budget as a share of what all documents take.")
    ] = 0.2,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Hit rate and bytes of a full store against LRU and the future known, on documents that come, go and change."""
    with command(as_json=json) as out:
        started = time.perf_counter()
        with out.progress() as progress:
            result = ctx.obj.bench_churn(
                requests=requests,
                documents=documents,
                one_off_share=one_offs,
                update_share=updates,
                budget_share=budget,
                seed=seed,
                progress=progress,
            )
        result = with_provenance(result, model="none", seconds=time.perf_counter() - started)
        shown = result | {"hardware": hardware_line(result["hardware"])}
        out.result(result, lambda console: show_rows(console, "Churn", shown))


def memory(
    ctx: typer.Context,
    questions: Annotated[
        int,
        typer.Option(
            "--eval", min=0, help="Also ask so many questions a task with plain and with each kind of compact payloads."
        ),
    ] = 0,
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    policy: options.Policy = "hypic",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Bytes of a segment by its length: keys and values, end states, transitions. With --eval, the answers too."""
    with command(as_json=json) as out:
        started = time.perf_counter()
        with (
            options.open_engine(ctx, out, model=model, policy=policy, threads=threads) as engine,
            out.progress() as progress,
        ):
            result = ctx.obj.bench_memory(engine, seed=seed, progress=progress)
            if questions:
                result["answers"] = _answers(engine, result["rows"], questions, seed, progress)
        result = with_provenance(result, model=model, seconds=time.perf_counter() - started)
        shown = result | {"hardware": hardware_line(result["hardware"])}

        def show(console: Console) -> None:
            show_rows(console, "Bytes of a segment", shown)
            if questions:
                show_rows(console, "Answers with compact payloads (gaps in points)", {"rows": result["answers"]})

        out.result(result, show)


def _answers(
    engine: Engine, rows: Sequence[dict[str, Any]], questions: int, seed: int, progress: Progress
) -> list[dict[str, Any]]:
    """A row a compaction: the largest share of plain bytes that states take, and what changes in the answers."""
    from hypic_agents.bench.memory import COMPACTIONS
    from hypic_agents.quality.payload_gap import payload_gap
    from hypic_agents.runtime.compact import Compaction

    chosen = [compaction for compaction in COMPACTIONS if compaction != Compaction()]
    gaps = payload_gap(engine, chosen, questions_per_task=questions, seed=seed, progress=progress)
    made = []
    for compaction, gap in zip(chosen, gaps, strict=True):
        named = asdict(compaction)
        shares = [row["states_vs_float32"] for row in rows if {name: row[name] for name in named} == named]
        share = max(shares)
        passes = share <= _MOST_STATES and abs(gap["gap_change"]) <= _MOST_POINTS
        made.append({**named, "states_vs_float32": share, **gap, "passes": passes})
    return made
