"""``eval`` and ``bench``: the call they make, and their results as a table or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hypic_agents.quality.policies import EVALUATED, pareto_policies, sweep_policies
from tests.cli.conftest import Invoke

RESULT = {"rows": [{"policy": "hypic", "accuracy": 0.9375, "questions": 16}], "seed": 4, "skew": float("nan")}


class Recorder:
    def __init__(self) -> None:
        self.kwargs: dict[str, Any] = {}

    def __call__(self, engine: object, *, progress: Any, **kwargs: Any) -> dict[str, Any]:
        sys.stdout.write("a library that prints\n")
        progress("asking", 1, 2)
        self.kwargs = kwargs
        return dict(RESULT)


def test_eval_asks_every_preset_by_default(invoke: Invoke) -> None:
    run_eval = Recorder()
    assert invoke("eval", run_eval=run_eval).exit_code == 0
    assert run_eval.kwargs == {"questions_per_task": 400, "presets": EVALUATED, "tasks": None, "seed": 0}


def test_eval_passes_its_options_on(invoke: Invoke) -> None:
    run_eval = Recorder()
    args = ["-n", "5", "-p", "exact", "-p", "hypic:head_seam=4", "-t", "direct", "--seed", "9"]
    assert invoke("eval", *args, run_eval=run_eval).exit_code == 0
    assert run_eval.kwargs == {
        "questions_per_task": 5,
        "presets": ("exact", "hypic:head_seam=4"),
        "tasks": ("direct",),
        "seed": 9,
    }


@pytest.mark.parametrize(
    ("command", "hook"),
    [
        (["eval"], "run_eval"),
        (["bench", "warm"], "bench_warm"),
        (["bench", "compose"], "bench_compose"),
        (["bench", "grammar"], "bench_grammar"),
    ],
)
def test_rows_become_a_table_or_one_json_object(invoke: Invoke, command: list[str], hook: str) -> None:
    shown = invoke(*command, **{hook: Recorder()})
    assert shown.exit_code == 0
    assert "0.9375" in shown.stdout
    assert "seed: 4" in shown.stdout

    result = invoke(*command, "--json", **{hook: Recorder()})
    written = json.loads(result.stdout)
    assert written | RESULT | {"skew": None} == written
    assert {"model", "hardware", "command", "seconds"} <= set(written)
    assert {"cpu", "threads", "torch"} <= set(written["hardware"])
    assert "a library that prints" in result.stderr


def test_a_sweep_chooses_the_policies_and_adds_a_curve(invoke: Invoke, tmp_path: Path) -> None:
    figures = {"score": 0.5, "gap_points": 1.0, "gap_ci95": [0.0, 2.0], "kl": 0.1, "live_share": 0.2}

    def run_eval(engine: object, *, presets: Sequence[str], **_: Any) -> dict[str, Any]:
        assert tuple(presets) == sweep_policies()
        return {"rows": [], "questions": 7, "mean": dict.fromkeys(presets, figures)}

    picture = tmp_path / "sweep.png"
    result = invoke("eval", "--sweep", "--picture", str(picture), "--json", run_eval=run_eval)
    assert result.exit_code == 0
    assert [row["seam"] for row in json.loads(result.stdout)["curve"]] == [0, 3, 4, 8, 16, 32] * 2
    assert picture.stat().st_size > 1000
    assert "Head seam" in invoke("eval", "--sweep", run_eval=run_eval).stdout


def test_pareto_chooses_the_policies_and_answers_for_15_percent(invoke: Invoke, tmp_path: Path) -> None:
    def run_eval(engine: object, *, presets: Sequence[str], **_: Any) -> dict[str, Any]:
        assert tuple(presets) == pareto_policies()
        figures = {"score": 0.5, "gap_points": 4.0, "gap_ci95": [2.0, 6.0], "kl": 0.1}
        lives = {spec: 1.0 if spec == "exact" else 0.02 * at for at, spec in enumerate(presets)}
        return {"rows": [], "questions": 7, "mean": {spec: figures | {"live_share": lives[spec]} for spec in presets}}

    picture = tmp_path / "pareto.png"
    result = invoke("eval", "--pareto", "--picture", str(picture), "--json", run_eval=run_eval)
    assert result.exit_code == 0
    written = json.loads(result.stdout)["pareto"]
    assert len(written["points"]) == len(pareto_policies())
    assert written["front"] == [pareto_policies()[1]]
    assert {"seam_only_gap", "best_gap", "ratio", "best_policy"} <= set(written["at_15_percent"])
    assert picture.stat().st_size > 1000
    shown = invoke("eval", "--pareto", run_eval=run_eval).stdout
    assert "Score against live tokens" in shown
    assert "at 15 percent ratio: 1" in shown


@pytest.mark.parametrize(
    "args", [["--sweep", "-p", "hypic"], ["--pareto", "-p", "hypic"], ["--pareto", "--sweep"], ["--picture", "x.png"]]
)
def test_options_that_contradict_each_other_are_refused(invoke: Invoke, args: list[str]) -> None:
    result = invoke("eval", *args)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --")
