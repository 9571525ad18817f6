"""A picture of a failure analysis: where changed answers gather, and what mends them at which cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.picture import require_matplotlib

_BARS: Final = "#c44e52"
_LINE: Final = "#2f6db3"


def draw_explain(result: Mapping[str, Any], path: Path, *, title: str) -> None:
    """Save the result of ``run_explain`` as a picture; the file's ending names the format.

    Left: the share of answers that changed, by the distance of the farthest needed fact to its head seam. Right: the
    share of changed answers that each remedy mends (bars), and that it or a cheaper one does (line), from cheap to
    dear.

    Raises:
        HypicError: matplotlib is not installed.
        InvalidInput: the file cannot be written.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 4.6), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _draw_distance(left, result["summary"]["distance"])
    _draw_remedies(right, result["remedies"])
    changed = sum(result["changed"].values())
    figure.suptitle(f"{title}: {result['policy']} changed {changed} of {result['questions']} answers")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot save the picture as {str(path)!r}: {error}") from error


def _draw_distance(axes: Any, rows: list[dict[str, Any]]) -> None:
    rates = [100 * row["rate"] for row in rows]
    spread = [
        [rate - 100 * row["rate_ci95"][0] for rate, row in zip(rates, rows, strict=True)],
        [100 * row["rate_ci95"][1] - rate for rate, row in zip(rates, rows, strict=True)],
    ]
    axes.bar(range(len(rows)), rates, yerr=spread, capsize=3, color=_BARS)
    ticks = [f"{row['value']}\n{row['questions']} asked" for row in rows]
    axes.set_xticks(range(len(rows)), ticks, fontsize=7)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens between the head seam and the farthest needed fact")
    axes.set_ylabel("answers changed, % of the questions asked (95 %)")
    axes.grid(axis="y", alpha=0.3)


def _draw_remedies(axes: Any, rows: list[dict[str, Any]]) -> None:
    axes.set_xlabel("changed answers given back, %")
    axes.set_xlim(0, 104)
    axes.grid(axis="x", alpha=0.3)
    if not rows:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no answer changed", ha="center", va="center", transform=axes.transAxes)
        return
    places = range(len(rows))
    axes.barh(places, [100 * row["mended_share"] for row in rows], color=_BARS, alpha=0.75, label="by this remedy")
    cumulative = [100 * row["cumulative_share"] for row in rows]
    axes.plot(cumulative, places, "o-", color=_LINE, linewidth=1, label="by it or a cheaper one")
    axes.set_yticks(places, [f"{row['remedy']} ({row['live_share']:.0%} live)" for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8)
