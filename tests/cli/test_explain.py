"""``eval --explain``: the call it makes, its tables, its JSON, and what it refuses before a model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke

PLACE = {
    "source_id": "prose-1", "kind": "document", "style": "prose", "order": 2, "segments": 8, "segment_len": 90,
    "composed": True, "reason": "", "statement": "[x] costs 4", "value": "4", "position": 50, "length": 1,
    "to_seam": 12, "statement_to_seam": 8, "to_live": 30,
}  # fmt: skip
ANSWER = {
    "task": "single", "question": "What is [bold]it?", "change": "to_wrong", "expected": "4", "full_recompute": "4",
    "reuse": "5",
    "first_difference": {
        "index": 0, "full": "4", "policy": "5", "kl": 0.2, "full_margin": 0.125, "policy_margin": 0.5,
    },
    "prompt_tokens": 900, "segments": 8, "needed": [PLACE, PLACE | {"position": None}, PLACE | {"to_live": 0}],
    "live_share": 0.125,
    "mended_by": {"remedy": "one segment live", "source_id": "prose-1", "live_tokens": 200, "live_share": 0.22},
    "restored_by": ["one segment live", "all live"], "guilty": ["prose-1"],
}  # fmt: skip
ROW = {
    "value": "8 to 15", "questions": 4, "question_share": 1.0, "changed": 1, "changed_share": 1.0, "rate": 0.25,
    "rate_ci95": [0.1, 0.6], "lift": 1.0,
}  # fmt: skip
REMEDY = {
    "remedy": "all live", "live_share": 1.0, "tried": 1, "mended": 1, "mended_share": 1.0, "cumulative": 1,
    "cumulative_share": 1.0, "cheapest": 0,
}  # fmt: skip
RESULT = {
    "policy": "hypic", "questions": 4, "changed": {"to_wrong": 1, "to_right": 0, "to_other": 0}, "answers": [ANSWER],
    "summary": {key: [ROW] for key in ("task", "distance", "order", "needed", "style")}, "remedies": [REMEDY],
    "facts": {"needed": 3, "found": 2}, "live_share": 0.125, "seed": 0,
}  # fmt: skip


class Recorder:
    def __init__(self, result: dict[str, Any] = RESULT) -> None:
        self.kwargs: dict[str, Any] = {}
        self.result = result

    def __call__(self, engine: object, *, progress: Any, **kwargs: Any) -> dict[str, Any]:
        progress("scoring", 1, 1)
        self.kwargs = kwargs
        return dict(self.result)


def test_hypic_is_explained_by_default(invoke: Invoke) -> None:
    run = Recorder()
    assert invoke("eval", "--explain", run_explain=run).exit_code == 0
    assert run.kwargs == {"questions_per_task": 400, "policy": "hypic", "tasks": None, "seed": 0}


def test_its_options_are_passed_on(invoke: Invoke) -> None:
    run = Recorder()
    args = ["-n", "5", "-p", "hypic:head_seam=4", "-t", "single", "-t", "tool", "--seed", "9"]
    assert invoke("eval", "--explain", *args, run_explain=run).exit_code == 0
    assert run.kwargs == {
        "questions_per_task": 5,
        "policy": "hypic:head_seam=4",
        "tasks": ("single", "tool"),
        "seed": 9,
    }


def test_the_result_is_one_json_object(invoke: Invoke) -> None:
    written = json.loads(invoke("eval", "--explain", "--json", run_explain=Recorder()).stdout)
    assert written | RESULT == written
    assert {"model", "hardware", "command", "seconds"} <= set(written)


def test_people_get_tables(invoke: Invoke) -> None:
    shown = invoke("eval", "--explain", run_explain=Recorder()).stdout
    for text in (
        "Changed answers",
        "[bold]it?",
        "2 of 8: 12 behind the seam",
        "2 of 8: not found",
        "2 of 8: live",
        "22% live",
        "8 to 15",
        "What gives full recompute's answer back",
        "to wrong: 1",
        "facts found: 2",
    ):
        assert text in shown, text


def test_without_a_change_there_is_no_list(invoke: Invoke) -> None:
    nothing = RESULT | {"answers": [], "remedies": [], "changed": {"to_wrong": 0, "to_right": 0, "to_other": 0}}
    shown = invoke("eval", "--explain", run_explain=Recorder(nothing))
    assert shown.exit_code == 0
    assert "Changed answers by task" in shown.stdout
    assert "to wrong: 0" in shown.stdout


def test_a_picture_is_saved(invoke: Invoke, tmp_path: Path) -> None:
    picture = tmp_path / "explain.svg"
    assert invoke("eval", "--explain", "--picture", str(picture), run_explain=Recorder()).exit_code == 0
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--explain", "--sweep"], "--sweep"),
        (["--explain", "-p", "hypic", "-p", "addition"], "--policy addition"),
        (["--explain", "-p", "exact"], "'exact'"),
        (["--explain", "-p", "hypik"], "'hypik'"),
    ],
)
def test_what_cannot_be_explained_is_refused_before_a_model_is_loaded(
    invoke: Invoke, args: list[str], named: str
) -> None:
    run = Recorder()
    result = invoke("eval", *args, run_explain=run)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert named in result.stderr
    assert "loading" not in result.stderr
    assert run.kwargs == {}
