"""The example runs as it is, against servers of both kinds."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hypic_agents.runtime.models.registry import TINY
from tests.integrations.sglang.loopback import Loopback

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "agents" / "remote_sglang.py"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    return ended.value.code


@pytest.mark.parametrize(("kind", "reused"), [("stock", False), ("hypic", True)])
def test_it_runs(
    serve: Callable[..., Loopback],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    reused: bool,
) -> None:
    server = serve(kind)
    assert run(monkeypatch, server.url, "--tokenizer", str(TINY), "--max-tokens", "8") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    counts = [int(line.split()[0]) for line in lines[1::2]]
    assert all(count > 100 for count in counts[1:]) is reused


def test_it_tells_what_is_wrong(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "http://127.0.0.1:9") == 2
    assert "cannot be reached" in capsys.readouterr().err
