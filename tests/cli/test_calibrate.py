"""``calibrate``: what it reads, calls and writes, and what it refuses before a model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hypic_agents.cli import app
from hypic_agents.quality.calibrate import report
from hypic_agents.quality.calibrate.candidates import LADDER
from hypic_agents.quality.calibrate.changes import Change
from hypic_agents.quality.calibrate.choose import choose
from hypic_agents.quality.calibrate.run import Calibration
from hypic_agents.quality.calibrate.validate import validate_splits
from hypic_agents.quality.worlds import TASKS
from hypic_agents.runtime.policy_file import PolicyFile, read_policy_file
from tests.cli.conftest import Invoke
from tests.quality.calibrate.make_trials import trial, trials

SHEET = "Hearkin lives in Wogane. Hearkin has badge CG-334. Hearkin has a dog called Welett. The limit is 9 crowns."


class Recorder:
    """Stands for the calibration; its result comes from made-up outcomes."""

    def __init__(self) -> None:
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}

    def __call__(self, _engine: object, *args: Any, progress: Any, **kwargs: Any) -> tuple[dict[str, Any], PolicyFile]:
        self.args, self.kwargs = args, kwargs
        progress("scoring", 1, 1)
        made = trials(400, [trial("hypic:head_seam=4", 400, won=1, kl=1e-4, live=10)])
        budget, confidence = kwargs["budget"], kwargs["confidence"]
        splits = kwargs["splits"]
        checked = validate_splits(made, splits=splits, budget=budget, confidence=confidence, seed=0) if splits else None
        change = Change(12, "Who is [bold]it[/bold]?", "won", "Ann", "Bob", "Ann", 0.2)
        choice = choose(made, budget=budget, confidence=confidence)
        result = Calibration(budget, confidence, made, choice, (), (change,) * 25, checked)
        return report.to_dict(result), report.policy_file(result, fingerprint="ab12", model="tiny")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    line = {"documents": [{"text": SHEET, "source_id": "s"}], "question": "Where does Hearkin live?"}
    path.write_text(json.dumps(line) + "\n" + json.dumps(line | {"answer": "Wogane"}) + "\n", encoding="utf-8")
    return path


def test_the_choice_is_shown_and_written(invoke: Invoke, prompts: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    out = tmp_path / "policy.json"
    result = invoke(
        "calibrate", "--prompts", str(prompts), "--out", str(out), "--validate", "3", run_calibrate=recorder
    )
    assert result.exit_code == 0
    records, candidates = recorder.args
    assert [record.answer for record in records] == [None, "Wogane"]
    assert [policy.name for policy in candidates] == ["exact", *LADDER]
    assert recorder.kwargs == {"budget": 0.5, "confidence": 0.95, "splits": 3, "seed": 0, "max_tokens": 64}
    assert read_policy_file(out).policy.name == "hypic:head_seam=4"
    for text in (
        "Chosen: hypic:head_seam=4. It computes 10% of the prompt tokens",
        "Who is [bold]it[/bold]?",
        "5 more with --json",
        "in 3 of 3 splits",
        f"--policy file:{out}",
    ):
        assert text in result.stdout


def test_options_reach_the_calibration(invoke: Invoke, prompts: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    args = ["--gap-budget", "2", "--confidence", "0.8", "--no-ladder", "-c", "hypic", "-c", "zero_state", "--seed", "4"]
    out = tmp_path / "p.json"
    result = invoke(
        "calibrate",
        "--prompts",
        str(prompts),
        "--out",
        str(out),
        "--max-tokens",
        "9",
        "--json",
        *args,
        run_calibrate=recorder,
    )
    assert result.exit_code == 0
    assert [policy.name for policy in recorder.args[1]] == ["exact", "hypic", "zero_state"]
    assert recorder.kwargs == {"budget": 2.0, "confidence": 0.8, "splits": 0, "seed": 4, "max_tokens": 9}
    written = json.loads(result.stdout)
    assert {"policy", "certainty", "rows", "changed", "model", "hardware", "command", "seconds", "out"} <= set(written)
    assert len(written["changed"]) == 25
    assert "validation" not in written


def test_a_sample_is_written_without_a_model(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    result = invoke("calibrate", "--prompts", str(path), "--sample", "1", "--json")
    assert json.loads(result.stdout) == {"prompts": str(path), "written": len(TASKS)}
    assert len(path.read_text(encoding="utf-8").splitlines()) == len(TASKS)
    assert "loading" not in result.stderr
    assert invoke("calibrate", "--prompts", str(path), "--sample", "1").exit_code == 2


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--candidates", "nope"], "unknown policy 'nope'"),
        (["--candidates", "file:missing.json"], "no policy file missing.json"),
        (["--no-ladder"], "add --candidates"),
        (["--out", "missing/policy.json"], "there is no folder missing"),
        (["--gap-budget", "-1"], "gap budget -1"),
        (["--confidence", "1.5"], "confidence 1.5"),
        (["--validate", "3", "--prompts", "{one}"], "give at least 2"),
        (["--prompts", "{bad}"], "line 1: no JSON"),
        (["--prompts", "absent.jsonl"], "no file absent.jsonl"),
    ],
)
def test_mistakes_are_refused_before_the_model_loads(
    invoke: Invoke, prompts: Path, tmp_path: Path, args: list[str], says: str
) -> None:
    files = {"one": tmp_path / "one.jsonl", "bad": tmp_path / "bad.jsonl"}
    files["one"].write_text('{"question": "Who?"}', encoding="utf-8")
    files["bad"].write_text("{", encoding="utf-8")
    filled = [arg.format(**files) for arg in args]
    if "--prompts" not in filled:
        filled += ["--prompts", str(prompts)]
    if "--out" not in filled:
        filled += ["--out", str(tmp_path / "p.json")]
    recorder = Recorder()
    result = invoke("calibrate", *filled, "--json", run_calibrate=recorder)
    assert result.exit_code == 2
    assert says in json.loads(result.stdout)["error"]["message"]
    assert "loading" not in result.stderr
    assert recorder.args == ()
    assert not (tmp_path / "p.json").exists()


def test_a_real_calibration_from_the_command_line(prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "policy.json"
    args = ["--model", "random:qwen3_5:2m", "--threads", "1", "--max-tokens", "4"]
    common = ["calibrate", "--prompts", str(prompts), "--no-ladder", "-c", "hypic:head_seam=4", "--out", str(out)]
    result = CliRunner().invoke(
        app, [*common, *args, "--gap-budget", "100", "--confidence", "0.5", "--json"], catch_exceptions=False
    )
    assert result.exit_code == 0
    written = json.loads(result.stdout)
    assert written["policy"] == "hypic:head_seam=4"
    assert (written["prompts"], written["with_answers"]) == (2, 1)

    ask = ["ask", "Who?", "--policy", f"file:{out}", "--max-tokens", "1", "--threads", "1", "--json", "--model"]
    answered = CliRunner().invoke(app, [*ask, "random:qwen3_5:2m"], catch_exceptions=False)
    assert json.loads(answered.stdout)["report"]["policy"] == "hypic:head_seam=4"
    refused = CliRunner().invoke(app, [*ask, "tiny"], catch_exceptions=False)
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["error"]["type"] == "InvalidPolicyFile"
