from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.fakes import FakeEngine

QUESTION = "Where does Mira Soldane live?"


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    path = tmp_path / "mira.txt"
    path.write_text("Mira Soldane lives in Tarnovo. [bold]Not markup.[/bold]", encoding="utf-8")
    return path


def test_prints_the_answer_and_what_was_reused(invoke: Invoke, sheet: Path) -> None:
    engine = FakeEngine({QUESTION: "in [Tarnovo]"})
    result = invoke("ask", "--doc", str(sheet), QUESTION, engine=engine)
    assert result.exit_code == 0
    assert result.stdout.startswith("in [Tarnovo]\n")
    assert "10 of" in result.stdout
    assert engine.closed


def test_json_is_one_object_and_nothing_else(invoke: Invoke, sheet: Path) -> None:
    result = invoke("ask", "--json", "--doc", str(sheet), QUESTION, engine=FakeEngine({QUESTION: "Tarnovo"}))
    data = json.loads(result.stdout)
    assert list(data) == ["question", "answer", "finish_reason", "usage", "report"]
    assert data["answer"] == "Tarnovo"
    assert data["report"]["spans"][0]["state"] == "hit"


def test_documents_keep_their_order_and_options_reach_the_engine(invoke: Invoke, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("b.txt", "a.txt")]
    for path in paths:
        path.write_text(f"text of {path.name}", encoding="utf-8")
    engine = FakeEngine()
    docs = [word for path in paths for word in ("--doc", str(path))]
    options = ["--policy", "hypic:head_seam=4", "--max-tokens", "7", "--temperature", "0.5", "--seed", "3"]
    assert invoke("ask", *docs, *options, QUESTION, engine=engine).exit_code == 0
    (prompt, sampling, policy), *_ = engine.requests
    assert prompt.text.index("b.txt") < prompt.text.index("a.txt")
    assert policy == "hypic:head_seam=4"
    assert (sampling.max_tokens, sampling.temperature, sampling.seed) == (7, 0.5, 3)
