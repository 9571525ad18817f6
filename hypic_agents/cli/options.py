"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from hypic_agents.cli.output import Output
from hypic_agents.cli.services import Services
from hypic_agents.runtime.policy import PRESETS
from hypic_agents.runtime.policy_file import load_policy

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="A path, a hub name, 'tiny' or 'tiny-plain' (both ship with the package), or 'random:FAMILY[:SIZE]'.",
    ),
]
Policy = Annotated[
    str,
    typer.Option(
        "--policy",
        "-p",
        help=f"What is reused: {', '.join(PRESETS)}; with changes as in 'hypic:head_seam=4,tail_seam=0'; or file:PATH.",
    ),
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="CPU threads; all cores by default.")]
Seed = Annotated[int, typer.Option("--seed", help="Fixes every random choice.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout; progress goes to stderr.")]


@contextmanager
def open_engine(
    ctx: typer.Context,
    out: Output,
    *,
    model: str,
    policy: str,
    threads: int | None,
    store_dir: str | None = None,
    store_url: str | None = None,
) -> Iterator[Engine]:
    """The engine for one command. A bad policy is refused before the model is loaded."""
    load_policy(policy)
    services: Services = ctx.obj
    with out.status(f"loading model {model}"):
        places = {"store_dir": store_dir, "store_url": store_url}
        stored = {name: place for name, place in places.items() if place is not None}
        engine = services.load_engine(model, policy=policy, threads=threads, **stored)
    try:
        yield engine
    finally:
        engine.close()
