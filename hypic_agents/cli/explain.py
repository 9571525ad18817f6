"""``hypic-agents eval --explain``: the answers that a policy changes, and what would mend them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from hypic_agents.bench.hardware import hardware_line, with_provenance
from hypic_agents.cli import options
from hypic_agents.cli.output import Output, show_rows
from hypic_agents.errors import InvalidInput
from hypic_agents.quality.explain.picture import draw_explain
from hypic_agents.quality.explain.remedies import ladder
from hypic_agents.runtime.policy_file import load_policy

_TABLES = {
    "task": "Changed answers by task",
    "distance": "By tokens between the head seam and the farthest needed fact",
    "order": "By where in the prompt a needed segment stood",
    "needed": "By number of segments needed",
    "style": "By style of a needed segment",
}


def explain_answers(
    ctx: typer.Context,
    out: Output,
    *,
    questions: int,
    policies: Sequence[str] | None,
    tasks: Sequence[str] | None,
    picture: Path | None,
    seed: int,
    model: str,
    threads: int | None,
) -> None:
    """Run the failure analysis and write its result."""
    policy, *others = policies or ("hypic",)
    if others:
        raise InvalidInput(f"--explain looks at one policy; leave out --policy {others[0]}")
    # Refused before a model is loaded.
    ladder(load_policy(policy))
    started = time.perf_counter()
    with (
        options.open_engine(ctx, out, model=model, policy=policy, threads=threads) as engine,
        out.progress() as progress,
    ):
        result: dict[str, Any] = ctx.obj.run_explain(
            engine,
            questions_per_task=questions,
            policy=policy,
            tasks=tuple(tasks) if tasks else None,
            seed=seed,
            progress=progress,
        )
    if picture:
        draw_explain(result, picture, title=model)
    result = with_provenance(result, model=model, seconds=time.perf_counter() - started)
    out.result(result, lambda console: _show(console, result))


def _show(console: Console, result: Mapping[str, Any]) -> None:
    show_rows(console, "Changed answers", {"rows": [_answer_row(answer) for answer in result["answers"]]})
    for key, title in _TABLES.items():
        show_rows(console, title, {"rows": [_without_interval(row) for row in result["summary"][key]]})
    show_rows(console, "What gives full recompute's answer back", {"rows": result["remedies"]})
    counts = result["changed"] | {f"facts_{name}": count for name, count in result["facts"].items()}
    scalars = {name: value for name, value in result.items() if isinstance(value, (str, int, float))}
    show_rows(console, "", scalars | counts | {"hardware": hardware_line(result["hardware"])})


def _without_interval(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "rate_ci95"}


def _answer_row(answer: Mapping[str, Any]) -> dict[str, str]:
    """Several lines a cell: nine columns would leave each too narrow to read."""
    parted, mended = answer["first_difference"], answer["mended_by"]
    told = {"expected": answer["expected"], "full": answer["full_recompute"], "reuse": answer["reuse"]}
    row = {
        "task": f"{answer['task']}\n{answer['change']}",
        "question": answer["question"],
        "answers": "\n".join(f"{name}: {text}" for name, text in told.items()),
        "parts_at": f"{parted['full']!r} / {parted['policy']!r}\nmargin {parted['full_margin']:.2g}",
        "facts": "\n".join(map(_fact, answer["needed"])),
        "mended_by": "-" if mended is None else _remedy(mended),
    }
    return {name: escape(value) for name, value in row.items()}


def _fact(place: Mapping[str, Any]) -> str:
    where = f"{place['order']} of {place['segments']}"
    if place["position"] is None:
        return f"{where}: not found"
    if not place["to_live"]:
        return f"{where}: live"
    return f"{where}: {place['to_seam']} behind the seam"


def _remedy(mended: Mapping[str, Any]) -> str:
    return "\n".join(filter(None, (mended["remedy"], mended["source_id"], f"{mended['live_share']:.0%} live")))
