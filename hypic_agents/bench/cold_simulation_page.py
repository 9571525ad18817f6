"""The tables of a simulation on a Markdown page, between the markers of ``figures: cold``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypic_agents.bench.hardware import hardware_line
from hypic_agents.bench.paper.document import markdown_table, read_document
from hypic_agents.errors import InvalidInput

_NAME = "cold"
_BEGIN, _END = f"<!-- figures: {_NAME} -->", f"<!-- end of figures: {_NAME} -->"
ALONE = (
    *("workers", "shape", "policy", "build_s", "over_bound", "over_bare_bound"),
    *("best_speedup", "build_speedup", "ttft_speedup"),
)
BUSY = (
    *("workers", "losses", "policy", "cold_p50_s", "cold_p95_s", "others_p50_s", "others_p95_s"),
    *("others_p95_vs_single", "lost", "local", "restarts"),
)


def check_page(path: Path) -> None:
    """Raise before a long run rather than after it.

    Raises:
        InvalidInput: the page cannot be read, or the markers are missing.
    """
    read_document(path, [_NAME])


def write_page(result: Mapping[str, Any], path: Path, picture: Path | None = None) -> None:
    """Put the tables of ``result`` (with its provenance), and its picture, into the page; all other text stays.

    Raises:
        InvalidInput: the page cannot be read or written, or the markers are missing.
    """
    before, _, rest = read_document(path, [_NAME]).partition(_BEGIN)
    after = rest.partition(_END)[2]
    shown = ""
    if picture is not None:
        where = Path(os.path.relpath(picture, path.parent)).as_posix()
        shown = f"![Speedup of cold prompts by workers, and TTFT of cold prompts and of others by policy]({where})\n\n"
    try:
        path.write_text(f"{before}{_BEGIN}\n{shown}{_section(result)}{_END}{after}", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write the page {str(path)!r}: {error}") from error


def columns(rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Those columns of all rows."""
    return [{name: row[name] for name in names} for row in rows]


def _section(result: Mapping[str, Any]) -> str:
    measured, prediction = result["measured"], result["prediction"]
    hardware = hardware_line(measured.get("hardware", result["hardware"]))
    worst = ", ".join(f"{name}: {ratio:.3g}" for name, ratio in result["others_p95_worst"].items())
    return (
        f"`{result['command']}`: simulated with the costs of a real run of `{result['model']}` on {hardware}.\n\n"
        f"The real run with {prediction['workers']} workers took {prediction['measured_s']:.3g} s; from the run with "
        f"one worker the simulation predicts {prediction['predicted_s']:.3g} s, every build taking what the fitted "
        f"costs say for its length, which is {result['prediction_error']:.1%} off.\n\n"
        "At 8 workers, building is at least 6.5 times as fast as with one for "
        f"{_listed(result['speedup_reached'])}, and less for {_listed(result['speedup_missed'])}. It is within 5 % of "
        f"the bound for {_listed(result['near_bound'])}, and further from it for "
        f"{_listed(result['not_near_bound'])}.\n\n"
        f"One cold prompt in front of idle workers:\n\n{markdown_table(columns(result['alone'], ALONE))}\n"
        f"Fleets that are {result['settings']['load']:.0%} loaded:\n\n{markdown_table(columns(result['busy'], BUSY))}\n"
        f"Largest `others p95 vs single`, over all sizes: {worst}.\n"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "no shape"
