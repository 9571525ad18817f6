"""Pictures of an evaluation: score against seam, and score against live tokens, with full recompute as a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from hypic_agents.errors import HypicError, InvalidInput
from hypic_agents.quality.pareto import LIVE_BUDGET

_COLOURS: Final = {"alone": "#c44e52", "behind the system prompt": "#2f6db3"}
_PALETTE: Final = ("#c44e52", "#2f6db3", "#4c9f70", "#8a6bb1", "#d08a2e", "#5f6c7b")


def require_matplotlib() -> None:
    """Raise before a long run rather than after it.

    Raises:
        HypicError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise HypicError("a picture needs matplotlib, which is in the extra 'dev': pip install 'hypic-agents[dev]'")


def draw_sweep(result: Mapping[str, Any], path: Path, *, title: str) -> None:
    """Save ``result["curve"]`` as a picture; the file's ending names the format.

    Raises:
        HypicError: matplotlib is not installed.
        InvalidInput: the file cannot be written.
    """
    require_matplotlib()
    rows = result["curve"]
    seams = sorted({row["seam"] for row in rows})
    place = {seam: at for at, seam in enumerate(seams)}  # 0 has no place on a logarithmic axis
    figure, axes = _figure()
    exact = 100 * result["mean"]["exact"]["score"]
    axes.axhline(exact, color="#333333", linestyle="--", linewidth=1.4, label=f"full recompute ({exact:.1f} %)")
    for built in dict.fromkeys(row["built"] for row in rows):
        line = [row for row in rows if row["built"] == built]
        axes.errorbar(
            [place[row["seam"]] for row in line],
            [100 * row["score"] for row in line],
            yerr=_bars(line),
            marker="o",
            capsize=3,
            color=_COLOURS.get(built),
            label=f"segments built {built}",
        )
    live = {row["seam"]: row["live_share"] for row in rows}
    axes.set_xticks(list(place.values()), [f"{seam}\n{live[seam]:.0%} live" for seam in seams])
    axes.set_xlabel("head seam, tokens of each segment computed live (and share of the prompt that is live)")
    axes.set_ylabel("answers exactly right, % (mean over tasks)")
    axes.set_title(title)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    _save(figure, path)


def draw_pareto(result: Mapping[str, Any], path: Path, *, title: str) -> None:
    """Save ``result["pareto"]`` as a picture: one line a way of repair, and the front as steps.

    Raises:
        HypicError: matplotlib is not installed.
        InvalidInput: the file cannot be written.
    """
    require_matplotlib()
    points = [point for point in result["pareto"]["points"] if point["policy"] != "exact"]
    exact = 100 * result["mean"]["exact"]["score"]
    figure, axes = _figure()
    axes.axhline(exact, color="#333333", linestyle="--", linewidth=1.4, label=f"full recompute ({exact:.1f} %)")
    axes.axvline(100 * LIVE_BUDGET, color="#999999", linestyle=":", linewidth=1.2)
    for colour, repair in zip(cycle(_PALETTE), sorted({point["repair"] for point in points}), strict=False):
        line = [point for point in points if point["repair"] == repair]
        axes.errorbar(
            [100 * point["live_share"] for point in line],
            [100 * point["score"] for point in line],
            yerr=_bars(line),
            marker="o",
            capsize=3,
            color=colour,
            label=repair,
        )
    front = [point for point in points if point["on_front"]]
    axes.step(
        [100 * point["live_share"] for point in front],
        [100 * point["score"] for point in front],
        where="post",
        color="#000000",
        alpha=0.25,
        linewidth=5,
        label="Pareto front",
    )
    axes.set_xlabel("tokens of the prompt computed live, %")
    axes.set_ylabel("answers exactly right, % (mean over tasks)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    _save(figure, path)


def _figure() -> tuple[Any, Any]:
    """A figure that needs no screen, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _bars(points: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Lengths of the error bars below and above the scores, in points."""
    return [
        [max(0.0, point["gap_high"] - point["gap_points"]) for point in points],
        [max(0.0, point["gap_points"] - point["gap_low"]) for point in points],
    ]


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot save the picture as {str(path)!r}: {error}") from error
