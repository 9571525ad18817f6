"""``bench cold --simulate``: from a file that ``bench cold --json`` wrote to tables, a picture and a page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hypic_agents.bench.cold_simulation import Settings
from hypic_agents.cli import app
from hypic_agents.cli.services import Services
from tests.cli.fakes import FakeEngine

RUN = {
    "model": "random:measured",
    "hardware": {"cpu": "a processor", "threads": 1, "torch": "2.0"},
    "simulation": {
        "jobs": [{"tokens": 600, "seconds": 0.25, "bytes": 3_700_000}] * 3,
        "samples": [{"tokens": 100, "seconds": 0.04, "bytes": 2_200_000}],
        "makespan_s": {"1": 0.78, "2": 0.52},
        "answer_s": 0.1,
        "live_tokens": 185,
        "link_bytes_s": 1e9,
    },
}
PAGE = "# Page\n\n<!-- figures: cold -->\nprevious figures\n<!-- end of figures: cold -->\nafter\n"


def simulate(*args: str, services: Services | None = None) -> Result:
    command = ["bench", "cold", "--simulate", *args]
    return CliRunner().invoke(app, command, obj=services or Services(simulate_cold=small), catch_exceptions=False)


def small(source: Any, *, settings: Settings, progress: Any) -> dict[str, Any]:
    """The real simulation of fewer requests."""
    settings = replace(settings, requests=100, draws=1)
    return Services().simulate_cold(source, settings=settings, progress=progress)


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "cold.json"
    path.write_text(json.dumps(RUN), encoding="utf-8")
    return path


def test_a_measured_file_becomes_tables_a_picture_and_a_page(measured: Path, tmp_path: Path) -> None:
    page, picture = tmp_path / "page.md", tmp_path / "cold.png"
    page.write_text(PAGE, encoding="utf-8")
    given = ["--workers", "2", "--measured", str(measured), "--picture", str(picture), "--markdown", str(page)]
    done = simulate(*given, "--json")
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert result["model"] == "random:measured"
    assert {row["workers"] for row in result["alone"]} == {row["workers"] for row in result["busy"]} == {2}
    assert result["settings"]["network_bytes_s"] is None
    assert picture.stat().st_size > 10_000
    text = page.read_text(encoding="utf-8")
    assert "previous" not in text and text.endswith("<!-- end of figures: cold -->\nafter\n")
    assert "a real run of `random:measured` on a processor" in text
    assert "](cold.png)" in text
    assert f"{result['prediction_error']:.1%} off" in text
    assert text.count("\n| 2 | ") == len(result["alone"]) + len(result["busy"])


class Simulated:
    """What a simulation is asked for; the result is that of a real, small one."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result
        self.calls: list[tuple[Any, Settings]] = []

    def __call__(self, source: Any, *, settings: Settings, progress: Any) -> dict[str, Any]:
        self.calls.append((source, settings))
        return self.result


def test_without_a_file_the_model_is_measured_and_tables_are_shown(measured: Path) -> None:
    result = json.loads(simulate("--workers", "2", "--measured", str(measured), "--json").stdout)
    run, engine = Simulated(result), FakeEngine()
    services = Services(load_engine=lambda model, **_: engine, simulate_cold=run)  # type: ignore[arg-type]
    done = simulate("--network", "100", "--seed", "3", services=services)
    assert done.exit_code == 0
    ((source, settings),) = run.calls
    assert source is engine and engine.closed
    assert (settings.workers, settings.network_bytes_s, settings.seed) == ((8, 64, 512), 12.5e9, 3)
    for words in (
        "One cold prompt, idle workers",
        "Busy fleets, 50% loaded",
        "11 x 600",
        "round robin",
        "prediction error",
    ):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--workers", "8,many"], "8,64,512"),
        (["--workers", "0"], "from 1 to 4096"),
        (["--network", "0"], "network"),
        (["--measured", "missing.json"], "cannot read"),
        (["--markdown", "missing.md"], "cannot read the page"),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_a_model_is_loaded(args: list[str], says: str) -> None:
    def load(*_: Any, **__: Any) -> Any:
        raise AssertionError("no model is needed to see that")

    done = simulate(*args, "--json", services=Services(load_engine=load))
    assert done.exit_code == 2
    assert says in json.loads(done.stdout)["error"]["message"]
