"""``hypic-agents bench cold --simulate``: cold prefill on more workers than one has."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from hypic_agents.bench.cold_simulation import Settings
from hypic_agents.bench.cold_simulation_fleet import require_simpy
from hypic_agents.bench.cold_simulation_page import ALONE, BUSY, check_page, columns, write_page
from hypic_agents.bench.cold_simulation_picture import draw_simulation
from hypic_agents.bench.hardware import hardware_line, with_provenance
from hypic_agents.cli import options
from hypic_agents.cli.output import command, show_rows
from hypic_agents.errors import InvalidInput
from hypic_agents.quality.picture import require_matplotlib

_GBIT_BYTES = 1e9 / 8


def simulate(
    ctx: typer.Context,
    *,
    workers: str,
    measured: Path | None,
    network: float | None,
    picture: Path | None,
    markdown: Path | None,
    model: str,
    policy: str,
    seed: int,
    json: bool,
) -> None:
    """Simulate pools and fleets of these sizes with the costs of a real run, and show how far it predicts that run.

    Args:
        workers: Sizes, separated by commas.
        measured: A file that ``bench cold --json`` wrote; without one, ``model`` is measured now.
        network: Gigabits a second that a worker takes in; None for what was measured between processes.
        picture: Where to draw the result.
        markdown: A page with markers, into which the tables go.
    """
    with command(as_json=json) as out:
        started = time.perf_counter()
        # All of this is refused before a model is loaded.
        rate = None if network is None else network * _GBIT_BYTES
        settings = Settings(workers=_sizes(workers), network_bytes_s=rate, seed=seed)
        require_simpy()
        if picture is not None:
            require_matplotlib()
        if markdown is not None:
            check_page(markdown)
        run = ctx.obj.simulate_cold
        if measured is None:
            with (
                options.open_engine(ctx, out, model=model, policy=policy, threads=1) as engine,
                out.progress() as progress,
            ):
                result = run(engine, settings=settings, progress=progress)
        else:
            with out.progress() as progress:
                result = run(measured, settings=settings, progress=progress)
        if picture is not None:
            draw_simulation(
                result, picture, title=f"Cold prefill, simulated with the costs of {_origin(result, model)}"
            )
        result = with_provenance(result, model=_origin(result, model), seconds=time.perf_counter() - started)
        if markdown is not None:
            write_page(result, markdown, picture)
        out.result(result, lambda console: _show(console, result))


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidInput(f"--workers {text!r}: give numbers separated by commas, as in 8,64,512") from error


def _origin(result: Mapping[str, Any], model: str) -> str:
    return str(result["measured"].get("model", model))


def _show(console: Console, result: Mapping[str, Any]) -> None:
    show_rows(console, "One cold prompt, idle workers", {"rows": columns(result["alone"], ALONE)})
    title = f"Busy fleets, {result['settings']['load']:.0%} loaded"
    show_rows(console, title, {"rows": columns(result["busy"], BUSY)})
    prediction = result["prediction"]
    foretold = f"{prediction['measured_s']:.3g} s, predicted {prediction['predicted_s']:.3g} s"
    lines: dict[str, Any] = {
        f"real run with {prediction['workers']} workers": foretold,
        "prediction error": result["prediction_error"],
        "at least 6.5x at 8 workers": ", ".join(result["speedup_reached"]) or "no shape",
        "less": ", ".join(result["speedup_missed"]) or "no shape",
        "within 5 % of the bound at 8 workers": ", ".join(result["near_bound"]) or "no shape",
        "p95 of others at most 10 % higher": ", ".join(result["others_unharmed_by"]) or "no policy",
        "hardware of the measured run": hardware_line(result["measured"].get("hardware", result["hardware"])),
        "command": result["command"],
        "seconds": result["seconds"],
    }
    show_rows(console, "", lines)
