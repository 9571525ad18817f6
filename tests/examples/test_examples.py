"""The examples run offline on the bundled model, print what they say they print, and reuse what they should."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hypic_agents.runtime.shared import close_shared
from tests.event_loop import own_loop  # noqa: F401  pytest finds it here

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "agents"

pytestmark = [
    # LlamaIndex imports it to see whether an embedding is one of LangChain's.
    pytest.mark.filterwarnings("ignore:.langchain-community. is being sunset:DeprecationWarning"),
]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Any]]:
    """Run an example's ``main``: its rows, and what it printed."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)

    def call(name: str, *options: str) -> tuple[list[Any], str]:
        rows = import_module(name).main(["--threads", "1", *options])
        return rows, capsys.readouterr().out

    yield call
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__ or "").parent == FOLDER:
            del sys.modules[name]


def check(rows: list[Any], printed: str) -> None:
    """Every answer is there with its reuse and both times, and the last prompt by segment."""
    for row in rows:
        assert row.calls
        for call in row.calls:
            assert call.full_ttft_s > 0
            assert call.completion.report.ttft_s > 0
        assert f"{row.reused_tokens} / {row.prompt_tokens}" in printed
    for column in ("reused / prompt", "first token", "in full", "segment", "state", "note"):
        assert column in printed
    assert any(span.source_id in printed for span in rows[-1].calls[-1].completion.report.spans)


def states(row: Any, call: int = -1) -> dict[str, str]:
    return {span.source_id: span.state for span in row.calls[call].completion.report.spans if span.source_id}


def test_rag_chat(run: Callable[..., Any]) -> None:
    rows, printed = run("rag_chat", "--questions", "2", "--max-tokens", "12")
    check(rows, printed)
    chain, agent = rows[:2], rows[2:]
    assert set(states(chain[0]).values()) == {"cold"}
    shared = states(chain[0]).keys() & states(chain[1]).keys()
    assert all(states(chain[1])[name] == "hit" for name in shared)
    assert [len(row.calls) for row in agent] == [2, 2]
    assert states(agent[1], 0) == {"search_notes": "hit"}
    assert "hit" in states(agent[1]).values()


def test_query_engine(run: Callable[..., Any]) -> None:
    rows, printed = run("query_engine", "--questions", "2", "--max-tokens", "12")
    check(rows, printed)
    assert set(states(rows[0]).values()) == {"cold"}
    for first, second in ((rows[0], rows[1]), (rows[2], rows[3])):
        shared = states(first).keys() & states(second).keys()
        assert shared
        assert all(states(second)[name] == "hit" for name in shared)


def test_coding_agent(run: Callable[..., Any]) -> None:
    rows, printed = run("coding_agent", "--max-tokens", "24")
    check(rows, printed)
    assert [len(row.calls) for row in rows] == [3, 2, 2, 3, 1, 2]
    assert "Read: bikar.py 2x, malzino.py 1x, dorvel.py 1x, tulgano.py 1x" in printed
    assert "The model's own calls were those of the script" in printed
    edited = rows[3]
    assert states(edited, 0) | {"bikar.py": "hit"} == states(edited, 0)  # the old text, at its first place
    assert states(edited)["bikar.py"] == "cold"  # the new one
    files = {name: state for name, state in states(rows[4]).items() if name.endswith(".py")}
    assert files == {"bikar.py": "hit", "malzino.py": "hit", "dorvel.py": "hit"}


@pytest.mark.parametrize("name", ["rag_chat", "query_engine", "coding_agent"])
def test_help_says_what_it_is(name: str, run: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(name, "--help")
    assert ended.value.code == 0
    assert "--model" in capsys.readouterr().out


def test_what_the_documentation_shows_runs() -> None:
    text = (ROOT / "docs" / "integrations.md").read_text("utf-8")
    names: dict[str, Any] = {}
    try:
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(block, "docs/integrations.md", "exec"), names)
    finally:
        close_shared()
    assert names["answer"].response_metadata["hypic"]["prompt_tokens"] == names["answer"].usage_metadata["input_tokens"]
    assert names["model"].invoke("tea?").tool_calls[0]["name"] == "search"
