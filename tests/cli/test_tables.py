"""``eval`` and ``bench``: the call they make, and their results as a table or as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from hypic_agents.runtime.policy import PRESETS
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
    assert run_eval.kwargs == {"questions_per_task": 100, "presets": tuple(PRESETS), "tasks": None, "seed": 0}


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
    [(["eval"], "run_eval"), (["bench", "warm"], "bench_warm"), (["bench", "compose"], "bench_compose")],
)
def test_rows_become_a_table_or_one_json_object(invoke: Invoke, command: list[str], hook: str) -> None:
    shown = invoke(*command, **{hook: Recorder()})
    assert shown.exit_code == 0
    assert "0.9375" in shown.stdout
    assert "seed: 4" in shown.stdout

    result = invoke(*command, "--json", **{hook: Recorder()})
    assert json.loads(result.stdout) == RESULT | {"skew": None}
    assert "a library that prints" in result.stderr
