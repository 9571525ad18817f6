"""Mistakes of the caller: one line on stderr, exit code 2, no traceback; in JSON mode the same as an object."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hypic_agents.errors import EngineClosed, HypicError, InvalidPolicy, ModelMismatch, ModelNotFound
from tests.cli.conftest import Invoke
from tests.cli.fakes import FakeEngine


def _bad_file(folder: Path, kind: str) -> Path:
    path = folder / "sheet.txt"
    match kind:
        case "binary":
            path.write_bytes(b"\xff\xfe\x00")
        case "empty":
            path.write_text(" \n", encoding="utf-8")
        case "folder":
            path.mkdir()
    return path


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("missing", "DocumentNotFound"),
        ("binary", "DocumentUnreadable"),
        ("empty", "DocumentUnreadable"),
        ("folder", "DocumentUnreadable"),
    ],
)
def test_bad_document(invoke: Invoke, tmp_path: Path, kind: str, error: str) -> None:
    path = _bad_file(tmp_path, kind)
    result = invoke("ask", "--json", "--doc", str(path), "Who?", engine=FakeEngine(error=EngineClosed("used")))
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["type"] == error
    assert str(path) in json.loads(result.stdout)["error"]["message"]
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["ask", "Who?"], ["demo"], ["eval"], ["bench", "warm"], ["bench", "compose"]])
@pytest.mark.parametrize(
    "policy", ["nope", "hypic:head_seam=-1", "hypic:head_seam=many", "hypic:sea=1", "file:", "file:no/such.json"]
)
def test_bad_policy_is_refused_before_the_model_loads(invoke: Invoke, command: list[str], policy: str) -> None:
    result = invoke(*command, "--policy", policy, engine=FakeEngine(error=EngineClosed("used")))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "loading" not in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidPolicy("mend it"), 2),
        (ModelNotFound("no model there"), 2),
        (ModelMismatch("logits differ"), 1),
        (EngineClosed("closed"), 1),
        (HypicError("two\nlines"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_exit_code_follows_the_kind_of_error(invoke: Invoke, error: HypicError, code: int) -> None:
    engine = FakeEngine(error=error)
    result = invoke("ask", "--json", "Who?", engine=engine)
    assert result.exit_code == code
    assert json.loads(result.stdout) == {
        "error": {"type": type(error).__name__, "message": " ".join(str(error).split())}
    }
    assert "Traceback" not in result.stderr
    assert engine.closed


def test_a_programming_error_is_not_dressed_up_as_a_users(invoke: Invoke) -> None:
    def broken(*args: object, **kwargs: object) -> dict[str, object]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        invoke("eval", run_eval=broken)
