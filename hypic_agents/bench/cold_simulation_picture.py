"""A picture of a simulation: how cold prompts scale, and what scattering costs other requests."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from hypic_agents.bench.cold_simulation_placement import LPT_IDLE
from hypic_agents.errors import InvalidInput

_PALETTE: Final = ("#2f6db3", "#c44e52", "#4c9f70", "#8a6bb1", "#d08a2e", "#5f6c7b")


def draw_simulation(result: Mapping[str, Any], path: Path, *, title: str) -> None:
    """Save the speedup of prompts alone by the number of workers, and the p95 of others by policy.

    Args:
        result: Of :func:`hypic_agents.bench.cold_simulation.run`.
        path: The file; its ending names the format.
        title: Stands above.

    Raises:
        InvalidInput: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _draw_alone(left, result)
    _draw_busy(right, result)
    figure.suptitle(title)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot save the picture as {str(path)!r}: {error}") from error


def _draw_alone(axes: Any, result: Mapping[str, Any]) -> None:
    rows = [row for row in result["alone"] if row["policy"] == LPT_IDLE.name]
    sizes = sorted({row["workers"] for row in rows})
    # Prompts that grow with the pool are one line.
    fixed = [name for name in dict.fromkeys(row["shape"] for row in rows) if _count(rows, name) == len(sizes)]
    for colour, name in zip(cycle(_PALETTE), fixed, strict=False):
        line = [row for row in rows if row["shape"] == name]
        axes.plot(
            [row["workers"] for row in line], [row["build_speedup"] for row in line], "o-", color=colour, label=name
        )
        axes.plot([row["workers"] for row in line], [row["best_speedup"] for row in line], ":", color=colour)
    grown = [row for row in rows if row["shape"] not in fixed]
    if grown:
        axes.plot(
            [row["workers"] for row in grown],
            [row["build_speedup"] for row in grown],
            "s-",
            color="#333333",
            label="4 x ~600 a worker",
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xticks(sizes)
    axes.set_xlabel("workers, idle but for one cold prompt")
    axes.set_ylabel("speedup of building over one worker (dotted: bound)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small", title="segments x tokens", title_fontsize="small")


def _draw_busy(axes: Any, result: Mapping[str, Any]) -> None:
    rows = [row for row in result["busy"] if row["losses"] == "none"]
    sizes = sorted({row["workers"] for row in rows})
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    width = 0.8 / len(policies)
    for at, (colour, policy) in enumerate(zip(cycle(_PALETTE), policies, strict=False)):
        line = [row for row in rows if row["policy"] == policy]
        places = [sizes.index(row["workers"]) + (at - (len(policies) - 1) / 2) * width for row in line]
        axes.bar(places, [row["cold_p95_s"] for row in line], width, color=colour, alpha=0.35)
        axes.bar(places, [row["others_p95_s"] for row in line], width, color=colour, label=policy)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_xlabel(f"workers, {result['settings']['load']:.0%} loaded")
    axes.set_ylabel("TTFT p95, s (pale: cold prompts, full: others)")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, fontsize="small")


def _count(rows: list[Any], name: str) -> int:
    return sum(row["shape"] == name for row in rows)
