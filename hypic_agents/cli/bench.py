"""``hypic-agents bench``: speed of warm prompts, and what composing segments and grammars cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from hypic_agents.bench.hardware import hardware_line, with_provenance
from hypic_agents.cli import options
from hypic_agents.cli.bench_cold import cold
from hypic_agents.cli.bench_store import churn, memory
from hypic_agents.cli.output import command, show_rows
from hypic_agents.cli.paper import paper

app = typer.Typer(no_args_is_help=True, help="Measure speed; every figure is for this machine.")
app.command()(paper)
app.command()(cold)
app.command()(churn)
app.command()(memory)

Repeats = Annotated[int, typer.Option("--repeats", "-n", min=1, help="Measurements a row.")]


@app.command()
def warm(
    ctx: typer.Context,
    repeats: Repeats = 5,
    seed: options.Seed = 0,
    model: options.Model = "random:qwen3_5",
    policy: options.Policy = "hypic",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Time to first token with warm segments, against full recompute and prefix caching."""
    run = ctx.obj.bench_warm
    _bench(ctx, "Warm prompts", run, repeats=repeats, seed=seed, model=model, policy=policy, threads=threads, json=json)


@app.command()
def compose(
    ctx: typer.Context,
    repeats: Repeats = 15,
    seed: options.Seed = 0,
    model: options.Model = "random:qwen3_5",
    policy: options.Policy = "hypic",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """What composing a segment costs by its length, and what its transition adds to building it."""
    run = ctx.obj.bench_compose
    _bench(ctx, "Composition", run, repeats=repeats, seed=seed, model=model, policy=policy, threads=threads, json=json)


@app.command()
def grammar(
    ctx: typer.Context,
    repeats: Repeats = 5,
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    policy: options.Policy = "hypic",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """What a grammar adds to decoding a token."""
    run = ctx.obj.bench_grammar
    _bench(ctx, "Grammars", run, repeats=repeats, seed=seed, model=model, policy=policy, threads=threads, json=json)


def _bench(
    ctx: typer.Context,
    title: str,
    run: Callable[..., dict[str, Any]],
    *,
    repeats: int,
    seed: int,
    model: str,
    policy: str,
    threads: int | None,
    json: bool,
) -> None:
    with command(as_json=json) as out:
        started = time.perf_counter()
        with (
            options.open_engine(ctx, out, model=model, policy=policy, threads=threads) as engine,
            out.progress() as progress,
        ):
            result = run(engine, repeats=repeats, seed=seed, progress=progress)
        result = with_provenance(result, model=model, seconds=time.perf_counter() - started)
        shown = result | {"hardware": hardware_line(result["hardware"])}
        out.result(result, lambda console: show_rows(console, title, shown))
