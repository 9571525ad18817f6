"""``hypic-agents bench paper``: figures of arXiv 2607.01299 measured again, theirs beside ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from hypic_agents.bench.hardware import hardware_line, with_provenance
from hypic_agents.bench.paper.document import read_document, write_document
from hypic_agents.bench.paper.findings import tables
from hypic_agents.bench.paper.pictures import draw
from hypic_agents.bench.paper.run import NAMES, choose, run
from hypic_agents.bench.paper.setup import QUICK, Setup, Sizes
from hypic_agents.cli import options
from hypic_agents.cli.output import Output, command, show_rows
from hypic_agents.quality.picture import require_matplotlib

if TYPE_CHECKING:
    from hypic_agents.quality.questions import Item
    from hypic_agents.runtime.engine import Engine

# Questions over documents: what the paper's question-answering workloads are at our scale.
_TASKS = ("single", "two_hop", "override", "running")


def paper(
    only: Annotated[
        list[str] | None, typer.Option("--only", help=f"An experiment; repeat for several. All: {', '.join(NAMES)}.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smallest sizes: a trial run, no figures to quote.")] = False,
    picture: Annotated[Path | None, typer.Option("--picture", help="Save pictures in this directory.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Renew the tables between the markers of this page.")
    ] = None,
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    speed_model: Annotated[
        str, typer.Option("--speed-model", help="The model whose speed is measured, and drift on random weights.")
    ] = "random:qwen3_5",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Figures of the paper on position-independent caching for hybrid models, measured again."""
    with command(as_json=json) as out:
        names = choose(only)
        if picture:
            require_matplotlib()
        if markdown:
            read_document(markdown, names)
        started = time.perf_counter()
        result = _run(out, names, model, speed_model, threads, seed, QUICK if quick else Sizes())
        result = with_provenance(result, model=model, seconds=time.perf_counter() - started)
        if markdown:
            write_document(markdown, result)
        if picture:
            draw(result["experiments"], picture)
        out.result(result, lambda console: _show(console, result))


def _run(
    out: Output,
    names: Sequence[str],
    model: str,
    speed_model: str,
    threads: int | None,
    seed: int,
    sizes: Sizes,
) -> dict[str, Any]:
    def load(name: str, dtype: str) -> Engine:
        from hypic_agents.runtime.config import EngineConfig
        from hypic_agents.runtime.engine import Engine

        return Engine.load(name, EngineConfig(model_dtype=dtype, threads=threads))

    with out.progress() as progress:
        setup = Setup(load, ask, trained=model, timed=speed_model, sizes=sizes, seed=seed, progress=progress)
        return run(setup, names) | {"speed_model": speed_model}


def ask(engine: Engine, count: int, seed: int) -> list[Item]:
    """``count`` questions, the tasks taking turns."""
    from hypic_agents.quality.questions import make_items

    share = -(-count // len(_TASKS))
    by_task = [make_items(engine, task, share, seed) for task in _TASKS]
    return [item for turn in zip(*by_task, strict=True) for item in turn][:count]


def _show(console: Console, result: dict[str, Any]) -> None:
    for made in result["experiments"].values():
        for title, rows in tables(made).items():
            show_rows(console, title, {"rows": rows})
        console.print(f"{made['source']}. {made['setting']}.\n", markup=False)
    shown = {name: value for name, value in result.items() if name != "experiments"}
    show_rows(console, "", shown | {"hardware": hardware_line(result["hardware"])})
