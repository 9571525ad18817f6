"""A picture of what a store's bytes hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.picture import require_matplotlib

_PARTS: Final = {
    "keys_values": ("keys and values", "#2f6db3"),
    "end_state": ("end states S", "#4c9f70"),
    "transition": ("transitions T", "#c44e52"),
    "other": ("conv tails, ids, headers", "#999999"),
}
_SHOWN = 20
_MIB = 1 << 20


def draw_contents(result: Mapping[str, Any], path: Path, *, title: str) -> None:
    """Save the bytes of each source as a bar of its parts; small sources are drawn as one.

    Args:
        result: ``rows`` with ``source_id``, ``total`` and bytes by part, the largest first, and ``bytes`` of all.
        path: The file; its ending names the format.
        title: Stands above, with the total.

    Raises:
        HypicError: matplotlib is not installed.
        InvalidInput: nothing to draw, or the file cannot be written.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [dict(row) for row in result["rows"]]
    if not rows:
        raise InvalidInput("the store is empty; there is nothing to draw")
    if len(rows) > _SHOWN:
        rest = {part: sum(row[part] for row in rows[_SHOWN - 1 :]) for part in _PARTS}
        rows = [*rows[: _SHOWN - 1], {"source_id": f"{len(rows) - _SHOWN + 1} others", **rest}]
    figure = Figure(figsize=(8, 1.7 + 0.28 * len(rows)), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = [_shortened(row["source_id"]) for row in rows]
    starts = [0.0] * len(rows)
    for part, (label, colour) in _PARTS.items():
        widths = [row[part] / _MIB for row in rows]
        axes.barh(range(len(rows)), widths, left=starts, color=colour, label=label)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlabel("MiB")
    axes.set_title(f"{title}, {result['bytes'] / _MIB:.1f} MiB")
    figure.legend(frameon=False, loc="outside lower center", ncols=len(_PARTS))
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot save the picture to {path}: {error}") from error


def _shortened(name: str) -> str:
    return name if len(name) <= 40 else "…" + name[-39:]
