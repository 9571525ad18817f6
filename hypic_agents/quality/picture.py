"""A picture of the seam sweep: score against seam, with full recompute as a line."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from hypic_agents.errors import HypicError, InvalidInput

_COLOURS: Final = {"alone": "#c44e52", "behind the system prompt": "#2f6db3"}


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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = result["curve"]
    seams = sorted({row["seam"] for row in rows})
    place = {seam: at for at, seam in enumerate(seams)}  # 0 has no place on a logarithmic axis
    figure = Figure(figsize=(7.2, 4.4), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    exact = 100 * result["mean"]["exact"]["score"]
    axes.axhline(exact, color="#333333", linestyle="--", linewidth=1.4, label=f"full recompute ({exact:.1f} %)")
    for built in dict.fromkeys(row["built"] for row in rows):
        line = [row for row in rows if row["built"] == built]
        axes.errorbar(
            [place[row["seam"]] for row in line],
            [100 * row["score"] for row in line],
            yerr=[
                [max(0.0, row["gap_high"] - row["gap_points"]) for row in line],
                [max(0.0, row["gap_points"] - row["gap_low"]) for row in line],
            ],
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
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot save the picture as {str(path)!r}: {error}") from error
