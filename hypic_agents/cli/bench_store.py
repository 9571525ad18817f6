"""``hypic-agents bench churn`` and ``bench memory``: what the store does under pressure, and what segments take."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from hypic_agents.bench.hardware import hardware_line, with_provenance
from hypic_agents.cli import options
from hypic_agents.cli.output import command, show_rows


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
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    policy: options.Policy = "hypic",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Bytes of a segment by its length: keys and values, end states, transitions."""
    with command(as_json=json) as out:
        started = time.perf_counter()
        with (
            options.open_engine(ctx, out, model=model, policy=policy, threads=threads) as engine,
            out.progress() as progress,
        ):
            result = ctx.obj.bench_memory(engine, seed=seed, progress=progress)
        result = with_provenance(result, model=model, seconds=time.perf_counter() - started)
        shown = result | {"hardware": hardware_line(result["hardware"])}
        out.result(result, lambda console: show_rows(console, "Bytes of a segment", shown))
