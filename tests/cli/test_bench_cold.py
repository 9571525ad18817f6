"""``bench cold``: the call it makes, its result as a table or JSON, and what it refuses before a model is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from hypic_agents.cli import app
from hypic_agents.cli.services import Services
from tests.cli.conftest import Invoke
from tests.cli.fakes import FakeEngine

ROWS = [{"form": "workers", "ttft_s": 1.0, "speedup": 1.0}, {"form": "one_worker", "ttft_s": 1.8, "speedup": 1.8}]


@pytest.fixture
def calls() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def run(calls: list[dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def bench_cold(_engine: Any, **given: Any) -> dict[str, Any]:
        calls.append({name: value for name, value in given.items() if name != "progress"})
        return {"rows": ROWS, "speedup_vs_one_worker": 1.8, "simulation": {"jobs": []}}

    return bench_cold


def test_a_run_is_shown_and_written(invoke: Invoke, run: Any, calls: list[dict[str, Any]]) -> None:
    shown = invoke("bench", "cold", "-n", "3", "--workers", "4", "--seed", "7", bench_cold=run)
    assert shown.exit_code == 0
    assert "one_worker" in shown.stdout
    assert "speedup vs one worker: 1.8" in shown.stdout
    written = json.loads(invoke("bench", "cold", "--json", bench_cold=run).stdout)
    assert written["speedup_vs_one_worker"] == 1.8
    assert written["simulation"] == {"jobs": []}
    assert {"model", "hardware", "command"} <= set(written)
    assert calls == [{"workers": 4, "repeats": 3, "seed": 7}, {"workers": 2, "repeats": 9, "seed": 0}]


def test_the_model_is_loaded_with_one_thread(run: Any) -> None:
    loaded: list[dict[str, Any]] = []

    def load(model: str, **given: Any) -> Any:
        loaded.append({"model": model, **given})
        return FakeEngine()

    done = CliRunner().invoke(app, ["bench", "cold", "--json"], obj=Services(load_engine=load, bench_cold=run))
    assert done.exit_code == 0
    assert loaded == [{"model": "random:qwen3_5", "policy": "hypic", "threads": 1}]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--workers", "1"], "--workers '1': give a number of 2 or more"),
        (["--workers", "8,64"], "several sizes need --simulate"),
        (["--network", "10"], "--network: only together with --simulate"),
        (["--measured", "x.json", "--markdown", "y.md"], "--measured, --markdown: only together with --simulate"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_model_is_loaded(args: list[str], says: str) -> None:
    def load(model: str, **_: Any) -> Any:
        raise AssertionError("a model was loaded")

    done = CliRunner().invoke(app, ["bench", "cold", *args, "--json"], obj=Services(load_engine=load))
    assert done.exit_code == 2
    assert says in json.loads(done.stdout)["error"]["message"]
