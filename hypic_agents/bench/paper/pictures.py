"""Pictures of the experiments that the paper shows as figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypic_agents.bench.paper.findings import Experiment
from hypic_agents.errors import InvalidInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(experiments: Mapping[str, Experiment], directory: Path) -> list[Path]:
    """Save one PNG for every experiment that has a picture. matplotlib must be there.

    Raises:
        InvalidInput: the directory or a file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paths = []
    for name, made in experiments.items():
        if name not in _PICTURES:
            continue
        figure = Figure(figsize=(7.2, 4.4), dpi=160, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _PICTURES[name](axes, made["details"])
        axes.set_title(made["title"])
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        path = directory / f"{name}.png"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            figure.savefig(path)
        except OSError as error:
            raise InvalidInput(f"cannot save the picture as {str(path)!r}: {error}") from error
        paths.append(path)
    return paths


def _seam_sweep(axes: Axes, details: Mapping[str, Any]) -> None:
    (rows,) = details.values()
    swept = [row for row in rows if row["width"] is not None]
    widths = sorted({row["width"] for row in swept})
    for built in dict.fromkeys(row["built"] for row in swept):
        line = {row["width"]: row["kl"] for row in swept if row["built"] == built}
        axes.plot(range(len(widths)), [line[width] for width in widths], marker="o", label=built)
    axes.set_xticks(range(len(widths)), [str(width) for width in widths])
    axes.set_xlabel("seam width, tokens")
    axes.set_ylabel("KL to full recompute, nats a token")


def _deviation(axes: Axes, details: Mapping[str, Any]) -> None:
    rows = list(details.values())[-1]
    for policy in [name for name in rows[0] if name != "position"]:
        line = [(row["position"], row[policy]) for row in rows if row[policy] is not None]
        axes.plot(*zip(*line, strict=True), label=policy)
    axes.set_xlabel("position in the segment, tokens")
    axes.set_ylabel("mean absolute difference of attention scores")


def _latency(axes: Axes, details: Mapping[str, Any]) -> None:
    rows = next(iter(details.values()))
    for mode in ("full", "cold", "warm"):
        axes.plot([row["prompt_tokens"] for row in rows], [row[f"{mode}_s"] for row in rows], marker="o", label=mode)
    axes.set_xlabel("tokens of the prompt, four segments")
    axes.set_ylabel("seconds to the first token")


_PICTURES: dict[str, Callable[[Any, Mapping[str, Any]], None]] = {
    "seam-sweep": _seam_sweep,
    "deviation": _deviation,
    "latency": _latency,
}
