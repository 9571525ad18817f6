"""The measured tables of a Markdown page: written between markers, each under the command and hardware it came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hypic_agents.bench.hardware import hardware_line
from hypic_agents.bench.paper.findings import Experiment, tables
from hypic_agents.errors import InvalidInput


def read_document(path: Path, names: Iterable[str]) -> str:
    """The page's text, which must have a place for every one of these experiments.

    Raises:
        InvalidInput: it cannot be read, or a marker is missing.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read the page {str(path)!r}: {error}") from error
    for name in names:
        begin, end = _markers(name)
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            raise InvalidInput(f"{str(path)!r} needs one line {begin!r} and behind it one line {end!r}")
    return text


def write_document(path: Path, result: Mapping[str, Any]) -> None:
    """Put the tables of ``result`` (with its provenance) into the page; all other text stays.

    Raises:
        InvalidInput: the page cannot be read or written, or a marker is missing.
    """
    experiments: Mapping[str, Experiment] = result["experiments"]
    text = read_document(path, experiments)
    origin = f"Measured with `{result['command']}` on {hardware_line(result['hardware'])}."
    for name, made in experiments.items():
        begin, end = _markers(name)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{origin}\n{made['setting']}.\n\n{_tables(made)}{end}{after}"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write the page {str(path)!r}: {error}") from error


def markdown_table(rows: list[dict[str, Any]]) -> str:
    """Rows that share their keys as a Markdown table; numbers to four digits."""
    names = list(rows[0])
    header = [name.replace("_", " ") for name in names]
    lines = [header, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _tables(made: Experiment) -> str:
    checks = ", ".join(f"{name.replace('_', ' ')} {error:.1e}" for name, error in made["agreement"].items())
    parts = [f"{heading}:\n\n{markdown_table(rows)}\n" for heading, rows in tables(made).items()]
    return "".join([*parts, f"Checks of the run (relative errors): {checks}.\n"])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- figures: {name} -->", f"<!-- end of figures: {name} -->"
