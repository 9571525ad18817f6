"""The command line: ``hypic-agents demo | ask | chat | eval | calibrate | bench | cache``.

Importing it does not import torch.
"""

from __future__ import annotations

from typing import Annotated

import typer

from hypic_agents import __version__
from hypic_agents.cli import bench, cache
from hypic_agents.cli.ask import ask
from hypic_agents.cli.calibrate import calibrate
from hypic_agents.cli.chat import chat
from hypic_agents.cli.demo import demo
from hypic_agents.cli.eval import evaluate
from hypic_agents.cli.services import Services

app = typer.Typer(
    name="hypic-agents",
    help="Position-independent prompt caching for agents and RAG.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(ask)
app.command()(chat)
app.command("eval")(evaluate)
app.command()(calibrate)
app.add_typer(bench.app, name="bench")
app.add_typer(cache.app, name="cache")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hypic-agents {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Position-independent prompt caching for agents and RAG."""
    ctx.obj = ctx.obj or Services()


def main(services: Services | None = None) -> None:
    """Run the command line on ``sys.argv``."""
    app(obj=services)
