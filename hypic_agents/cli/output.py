"""Where a command's words go: results to stdout, progress and errors to stderr, one JSON object with ``--json``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, is_dataclass
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from hypic_agents.cli import services
from hypic_agents.errors import HypicError, InvalidInput

# Wide enough for our tables where the output is a file or a pipe and has no width of its own.
_PIPED_WIDTH = 140


def _console(stream: TextIO) -> Console:
    return Console(file=stream, width=None if stream.isatty() else _PIPED_WIDTH, highlight=False)


def exit_code(error: HypicError) -> int:
    """2 where the caller can mend the input, 1 otherwise."""
    return 2 if isinstance(error, InvalidInput) else 1


def plain(value: Any) -> Any:
    """``value`` as JSON types; numbers that JSON cannot write become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


class Output:
    """One command's output. In JSON mode stdout receives exactly one object, whatever else is printed meanwhile."""

    def __init__(self, *, as_json: bool, stdout: TextIO, stderr: TextIO) -> None:
        self.as_json = as_json
        self.console = _console(stdout)
        self.log = _console(stderr)
        self._stdout = stdout

    def result(self, data: Mapping[str, Any], show: Callable[[Console], None]) -> None:
        """Write the command's result: ``data`` as JSON, or whatever ``show`` prints for a person."""
        if self.as_json:
            self._write_json(data)
        else:
            show(self.console)

    def error(self, error: HypicError) -> None:
        message = " ".join(str(error).split()) or type(error).__name__
        self.log.print(f"error: {message}", style="red", markup=False, soft_wrap=True)
        if self.as_json:
            self._write_json({"error": {"type": type(error).__name__, "message": message}})

    @contextmanager
    def status(self, text: str) -> Iterator[None]:
        """Say what is being done where no count is known."""
        with self.log.status(text):
            if not self.log.is_terminal:
                self.log.print(text, markup=False)
            yield

    @contextmanager
    def progress(self) -> Iterator[services.Progress]:
        """A bar a stage on stderr, driven by ``progress(stage, done, total)``."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        tasks: dict[str, TaskID] = {}
        with Progress(*columns, console=self.log) as bars:

            def advance(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=total)
                bars.update(tasks[stage], completed=done, total=total)

            yield advance

    def _write_json(self, data: Mapping[str, Any]) -> None:
        json.dump(plain(data), self._stdout, ensure_ascii=False, allow_nan=False)
        self._stdout.write("\n")
        self._stdout.flush()


@contextmanager
def command(*, as_json: bool) -> Iterator[Output]:
    """Run a command's body: its errors become one line and an exit code instead of a traceback."""
    out = Output(as_json=as_json, stdout=sys.stdout, stderr=sys.stderr)
    try:
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            yield out
    except HypicError as error:
        out.error(error)
        raise typer.Exit(exit_code(error)) from error


def show_rows(console: Console, title: str, result: Mapping[str, Any]) -> None:
    """Print ``result["rows"]`` as a table and the other scalar entries as lines below it."""
    rows: list[Mapping[str, Any]] = list(result.get("rows", ()))
    if rows:
        table = Table(title=title)
        for name in rows[0]:
            numeric = isinstance(rows[0][name], (int, float))
            table.add_column(name.replace("_", " "), justify="right" if numeric else "left")
        for row in rows:
            table.add_row(*(_cell(row.get(name)) for name in rows[0]))
        console.print(table)
    for name, value in result.items():
        if name != "rows" and isinstance(value, (str, int, float, bool)):
            console.print(f"{name.replace('_', ' ')}: {_cell(value)}", markup=False)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
