"""``hypic-agents bench cold``: a prompt of which nothing is cached, on several worker processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from hypic_agents.bench.hardware import hardware_line, with_provenance
from hypic_agents.cli import options
from hypic_agents.cli.output import command, show_rows
from hypic_agents.errors import InvalidInput


def cold(
    ctx: typer.Context,
    repeats: Annotated[int, typer.Option("--repeats", "-n", min=1, help="Measurements a row.")] = 9,
    workers: Annotated[
        str, typer.Option("--workers", help="Worker processes of one thread each; with --simulate, sizes as in 8,64.")
    ] = "",
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate more workers than there are, with measured costs.")
    ] = False,
    measured: Annotated[
        Path | None, typer.Option("--measured", help="With --simulate: a file that this command wrote with --json.")
    ] = None,
    network: Annotated[
        float | None, typer.Option("--network", help="With --simulate: gigabits a second that a worker takes in.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="With --simulate: where to draw the result.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="With --simulate: a page with markers, to write the tables into.")
    ] = None,
    seed: options.Seed = 0,
    model: options.Model = "random:qwen3_5",
    policy: options.Policy = "hypic",
    json: options.Json = False,
) -> None:
    """Time to first token of a cold prompt on worker processes, against one of them and full recompute."""
    if simulate:
        from hypic_agents.cli.bench_cold_simulation import simulate as run_simulation

        run_simulation(
            ctx,
            workers=workers or "8,64,512",
            measured=measured,
            network=network,
            picture=picture,
            markdown=markdown,
            model=model,
            policy=policy,
            seed=seed,
            json=json,
        )
        return
    with command(as_json=json) as out:
        started = time.perf_counter()
        count = _number(workers or "2")
        given = {"--measured": measured, "--network": network, "--picture": picture, "--markdown": markdown}
        if any(value is not None for value in given.values()):
            names = ", ".join(name for name, value in given.items() if value is not None)
            raise InvalidInput(f"{names}: only together with --simulate")
        with (
            options.open_engine(ctx, out, model=model, policy=policy, threads=1) as engine,
            out.progress() as progress,
        ):
            result = ctx.obj.bench_cold(engine, workers=count, repeats=repeats, seed=seed, progress=progress)
        result = with_provenance(result, model=model, seconds=time.perf_counter() - started)
        shown = result | {"hardware": hardware_line(result["hardware"])}
        out.result(result, lambda console: show_rows(console, "Cold prompts", shown))


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise InvalidInput(f"--workers {text!r}: give a number of 2 or more; several sizes need --simulate")
    return int(text)
