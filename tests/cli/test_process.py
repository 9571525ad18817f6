"""The command as a user starts it: a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hypic_agents

SCRIPT = Path(sys.executable).with_name("hypic-agents")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(SCRIPT), *args], capture_output=True, text=True, check=False, timeout=300)


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"hypic-agents {hypic_agents.__version__}\n")


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("demo", "ask", "eval", "bench"))


def test_unknown_option_is_a_usage_error() -> None:
    done = run("ask", "--nope")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_bad_policy() -> None:
    done = run("ask", "--policy", "nope", "Who?")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown policy 'nope'")
    assert len(done.stderr.splitlines()) == 1


def test_missing_document_as_json(tmp_path: Path) -> None:
    done = run("ask", "--json", "--doc", str(tmp_path / "none.txt"), "Who?")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["type"] == "DocumentNotFound"
    assert done.stderr.startswith("error: ")


def test_unknown_model() -> None:
    done = run("ask", "--json", "--model", "./no/such/model", "Who?")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["type"] == "ModelNotFound"


def test_ask_the_packaged_model(tmp_path: Path) -> None:
    sheet = tmp_path / "mira.txt"
    sheet.write_text("Mira Soldane lives in Tarnovo. Mira Soldane drives a blue van.\n" * 3, encoding="utf-8")
    done = run("ask", "--json", "--doc", str(sheet), "Where does Mira Soldane live?")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["report"]["policy"] == "hypic"
    assert data["usage"]["prompt_tokens"] == data["report"]["prompt_tokens"]


@pytest.mark.slow
def test_demo_on_the_packaged_model() -> None:
    done = run("demo", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    summary = data["summary"]
    assert summary["questions"] == len(data["questions"]) >= 8
    assert summary["reused_share"] > 0.5
