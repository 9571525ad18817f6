from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hypic_agents.bench.paper.document import markdown_table, read_document, write_document
from hypic_agents.bench.paper.findings import experiment, finding
from hypic_agents.bench.paper.run import NAMES
from hypic_agents.cli import app
from hypic_agents.cli.services import Services
from hypic_agents.errors import InvalidInput

PAGE = "Before.\n<!-- figures: seam-sweep -->\nstale figures\n<!-- end of figures: seam-sweep -->\nAfter: 0.1.\n"
MADE = experiment(
    "Seams",
    "Figure 13",
    "one model",
    [finding("share | of_it", 0.8163265, 0.5, True, "more"), finding("other", None, None, None)],
    {"Rows": [{"width": 8, "kl": 1e-9, "on": True}], "Long": [{"x": 0}] * 50},
    {"warm_and_cold": 2.5e-7},
)
RESULT: dict[str, Any] = {
    "experiments": {"seam-sweep": MADE},
    "command": "hypic-agents bench paper",
    "hardware": {"cpu": "A CPU", "threads": 2, "torch": "2.13"},
}
ROOT = Path(__file__).parents[3]


def invoke(*args: str) -> Any:
    return CliRunner().invoke(app, ["bench", "paper", *args], obj=Services(), catch_exceptions=False)


def test_only_what_stands_between_the_markers_is_renewed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    write_document(page, RESULT)
    text = page.read_text()
    assert text.startswith("Before.\n<!-- figures: seam-sweep -->\nMeasured with `hypic-agents bench paper` on A CPU")
    assert text.endswith("\n<!-- end of figures: seam-sweep -->\nAfter: 0.1.\n")
    assert "stale" not in text
    assert "| share \\| of_it | 0.8163 | 0.5 | yes | more |" in text
    assert "| other | - | - | - |  |" in text
    assert "| 8 | 1e-09 | yes |" in text
    assert "Long" not in text
    assert "warm and cold 2.5e-07" in text
    write_document(page, RESULT)
    assert page.read_text() == text


@pytest.mark.parametrize(
    "text",
    ["", PAGE + PAGE, PAGE.replace("end of ", ""), "<!-- end of figures: seam-sweep -->\n<!-- figures: seam-sweep -->"],
)
def test_a_page_without_its_markers_is_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(InvalidInput, match="needs one line '<!-- figures: seam-sweep -->'"):
        write_document(page, RESULT)
    assert page.read_text() == text


def test_a_page_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read the page"):
        read_document(tmp_path / "absent.md", NAMES)


def test_a_table() -> None:
    assert markdown_table([{"a_b": 1, "c": None}]) == "| a b | c |\n| --- | --- |\n| 1 | - |\n"


def test_the_docs_page_has_a_place_for_every_experiment() -> None:
    read_document(ROOT / "docs" / "reproduction.md", NAMES)


def test_the_command_prints_json_renews_a_page_and_draws(tmp_path: Path) -> None:
    page, pictures = tmp_path / "page.md", tmp_path / "pictures"
    page.write_text(PAGE.replace("seam-sweep", "fixed-decay"))
    result = invoke("--only", "fixed-decay", "--quick", "--markdown", str(page), "--picture", str(pictures), "--json")
    assert result.exit_code == 0
    written = json.loads(result.stdout)
    assert list(written["experiments"]) == ["fixed-decay"]
    assert written["statements_that_hold"] == 9
    assert {"model", "speed_model", "hardware", "command", "seconds"} <= set(written)
    assert "| gamma = 1 - 2^-10, 512 tokens | 0.394 | 0.3936 | yes |" in page.read_text()


def test_the_command_shows_tables() -> None:
    result = invoke("--only", "fixed-decay", "--quick")
    assert result.exit_code == 0
    assert "0.3936" in result.stdout
    assert "statements that hold: 9" in result.stdout


@pytest.mark.parametrize("args", [["--only", "speed"], ["--markdown", "absent.md"]])
def test_bad_input_is_refused_before_anything_runs(args: list[str]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert "error: " in result.stderr
