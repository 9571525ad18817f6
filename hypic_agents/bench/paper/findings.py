"""What an experiment returns: plain data that becomes a table, JSON or Markdown alike. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Finding = dict[str, Any]
Experiment = dict[str, Any]

# Longer tables are data for pictures; they stay in the JSON.
_MOST_ROWS: Final = 40


def finding(what: str, theirs: float | str | None, ours: float | None, holds: bool | None, rule: str = "") -> Finding:
    """One comparison.

    Args:
        what: The quantity, with its unit.
        theirs: The paper's figure; words where it makes a statement without a number; None where it says nothing.
        ours: Measured in this run; None where the noise leaves no figure.
        holds: Whether the paper's statement holds here, by ``rule``; None where there is nothing to compare with, or
            the run is too small to tell.
        rule: When it is said to hold.
    """
    return {"what": what, "theirs": theirs, "ours": ours, "holds": holds, "rule": rule}


def experiment(
    title: str,
    source: str,
    setting: str,
    findings: Sequence[Finding],
    details: Mapping[str, Sequence[Mapping[str, Any]]],
    agreement: Mapping[str, float],
) -> Experiment:
    """The result of one experiment.

    Args:
        title: A heading.
        source: Where the paper has it.
        setting: Models and sizes of this run, and of theirs where they differ.
        findings: The comparisons.
        details: Tables behind them by heading; the rows of one table share their keys.
        agreement: What the run's own correctness checks found, as relative errors.
    """
    return {
        "title": title,
        "source": source,
        "setting": setting,
        "findings": list(findings),
        "details": {name: [dict(row) for row in rows] for name, rows in details.items()},
        "agreement": dict(agreement),
    }


def tally(experiments: Mapping[str, Experiment]) -> dict[str, int]:
    """How many of the paper's statements hold, how many do not, and how many findings decide nothing."""
    held = [one["holds"] for made in experiments.values() for one in made["findings"]]
    return {
        "statements_that_hold": held.count(True),
        "statements_that_do_not": held.count(False),
        "findings_without_verdict": held.count(None),
    }


def tables(made: Experiment) -> dict[str, list[dict[str, Any]]]:
    """The tables of an experiment for people, by heading: its findings, then what lies behind them."""
    words = {True: "yes", False: "no", None: "-"}
    findings = [one | {"holds": words[one["holds"]]} for one in made["findings"]]
    return {made["title"]: findings} | {
        name: rows for name, rows in made["details"].items() if 0 < len(rows) <= _MOST_ROWS
    }
