"""The conversation in the terminal: through a pipe on a real engine, its parts on a scripted backend."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hypic_agents.backend import ChatRequest
from hypic_agents.calls import ToolCall
from hypic_agents.cli import app
from hypic_agents.cli.chat import _answer, reuse_line
from hypic_agents.cli.chat_session import MAX_CALLS, ChatSession, ToolResult, Turn
from hypic_agents.cli.chat_tools import calculate, make_tools, run_tool
from hypic_agents.cli.output import Output
from hypic_agents.completion import ReuseReport, SpanReport, StreamChunk
from hypic_agents.core import SamplingParams, Segment, VolatileText
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.embedded import EmbeddedBackend
from hypic_agents.testing import FakeBackend
from tests.cli.fakes import services
from tests.runtime.models import engine

GATES = {
    f"gate-{i}.txt": f"Gate {i}\nThe keeper of gate {i} is called {name}. Carts pay {i + 4} coins at gate {i}, riders "
    f"pay {i + 1}. In winter gate {i} opens at {i + 6} in the morning."
    for i, name in enumerate(["Velmo", "Soldane"], 1)
}
Talk = Callable[..., Result]


@pytest.fixture
def gates(tmp_path: Path) -> list[Path]:
    for name, text in GATES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return [tmp_path / name for name in GATES]


def talk(*lines: str | bytes, args: list[str] | None = None) -> Result:
    """A conversation with a random model of its own."""
    said = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)
    command = ["chat", "--max-tokens", "3", *(args or [])]
    return CliRunner().invoke(app, command, obj=services(engine()), input=said, catch_exceptions=False)  # type: ignore[arg-type]


def objects(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def states(answer: dict[str, Any]) -> dict[str, str]:
    spans = answer["reports"][-1]["spans"]
    return {Path(span["source_id"]).name: span["state"] for span in spans if span["kind"] == "document"}


def test_files_are_reused_from_question_to_question(gates: list[Path]) -> None:
    docs = [word for path in gates for word in ("--doc", str(path))]
    lines = ("Who keeps gate 1?", "", "And gate 2?", f"/drop {gates[0]}", "And now?", f"/add {gates[0]}", "Then?")
    result = talk(*lines, args=["--json", *docs])
    assert result.exit_code == 0
    first, second, third, fourth = objects(result)
    assert [one["question"] for one in (first, second, third)] == ["Who keeps gate 1?", "And gate 2?", "And now?"]
    assert states(first) == {"gate-1.txt": "cold", "gate-2.txt": "cold"}
    assert states(second) == {"gate-1.txt": "hit", "gate-2.txt": "hit"}
    assert states(third) == {"gate-2.txt": "hit"}
    assert list(states(fourth).items()) == [("gate-2.txt", "hit"), ("gate-1.txt", "hit")]
    assert second["usage"]["prompt_tokens"] > first["usage"]["prompt_tokens"]
    assert second["usage"]["cached_tokens"] == second["reports"][0]["reused_tokens"] > 40
    assert set(first) == {"question", "answer", "finish_reason", "tools", "usage", "reports"}


def test_an_answer_is_followed_by_its_reuse(gates: list[Path]) -> None:
    result = talk("Who keeps gate 1?", "/files", "/help", "/quit", "never asked", args=["--doc", str(gates[0])])
    assert result.exit_code == 0
    assert result.stdout.count("reused 0 of ") == 1
    assert "first token" in result.stdout
    assert "in seams" in result.stdout
    assert f"{gates[0]}  " in result.stderr
    assert "/drop" in result.stderr


def test_errors_do_not_end_the_conversation(tmp_path: Path) -> None:
    result = talk("/nope", f"/add {tmp_path / 'none'}", "/add", "/drop x", b"\xff?", "Who?", args=["--json"])
    assert result.exit_code == 0
    *errors, answer = objects(result)
    kinds = ["InvalidInput", "DocumentNotFound", "InvalidInput", "InvalidInput", "InvalidMessages"]
    assert [error["error"]["type"] for error in errors] == kinds
    assert "/add takes the path" in errors[1]["error"]["message"]
    assert answer["question"] == "Who?"
    assert "Traceback" not in result.stderr


def test_resetting_forgets_what_was_said(gates: list[Path]) -> None:
    result = talk("One?", "One?", "/reset", "One?", args=["--json", "--doc", str(gates[0])])
    lengths = [one["usage"]["prompt_tokens"] for one in objects(result)]
    assert lengths[0] == lengths[2] < lengths[1]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--tools", "shell"], "shell"),
        (["--tools", "all", "--root", "/no/such"], "/no/such"),
        (["--doc", "none"], "none"),
    ],
)
def test_bad_options_are_refused_before_the_model_loads(args: list[str], named: str) -> None:
    result = talk("Who?", args=args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert named in result.stderr
    assert "loading" not in result.stderr


def session(backend: Any, **fields: Any) -> ChatSession:
    return ChatSession(backend, SamplingParams(max_tokens=2000), "hypic", **fields)


def test_tools_are_run_until_the_model_answers(gates: list[Path]) -> None:
    backend = FakeBackend([ToolCall("read_file", {"path": "gate-1.txt"}), "Velmo", "Velmo again"])
    chat = session(backend, tools=make_tools("read_file", gates[0].parent), system="Be brief.")
    *pieces, turn = chat.ask("Who keeps gate 1?")
    assert isinstance(turn, Turn)
    assert turn.last.text == "Velmo"
    assert [piece.text for piece in pieces if isinstance(piece, ToolResult)] == [GATES["gate-1.txt"]]
    assert len(turn.completions) == 2
    assert turn.usage.prompt_tokens == sum(c.usage.prompt_tokens for c in turn.completions)
    list(chat.ask("Again?"))
    first, second, third = backend.requests
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "tool"]
    assert [message["role"] for message in third.messages][-3:] == ["tool", "assistant", "user"]
    assert third.segments == [Segment(GATES["gate-1.txt"], "file", "gate-1.txt")]


def test_a_model_that_only_calls_tools_is_stopped(gates: list[Path]) -> None:
    backend = FakeBackend([ToolCall("list_files", {})])
    *_, turn = session(backend, tools=make_tools("all", gates[0].parent)).ask("Go")
    assert isinstance(turn, Turn)
    assert len(turn.completions) == MAX_CALLS
    assert [request.tool_choice for request in backend.requests] == ["auto"] * (MAX_CALLS - 1) + ["none"]


def test_documents_stand_before_the_latest_question_only() -> None:
    backend = FakeBackend()
    chat = session(backend, documents=[Segment("Some document.", "document", "a")])
    for question in ("One?", "Two?"):
        list(chat.ask(question))
    contents = [message["content"] for message in backend.requests[-1].messages]
    assert contents == ["One?", "ok", "Some document.\n\nTwo?"]


def test_a_file_that_is_added_again_takes_the_place_of_the_old_one() -> None:
    chat = session(FakeBackend(), documents=[Segment("old", source_id="a"), Segment("other", source_id="b")])
    chat.add(Segment("new", source_id="a"))
    assert [document.text for document in chat.documents] == ["other", "new"]
    with pytest.raises(InvalidInput, match=r"no file c.*b, a"):
        chat.drop("c")


def test_a_cancelled_answer_leaves_no_trace() -> None:
    backend = FakeBackend(["one two three"])
    chat = session(backend)
    pieces = chat.ask("Count.")
    next(pieces)
    pieces.close()
    assert backend.num_cancelled == 1
    assert chat.history == []


def test_ctrl_c_cancels_the_answer_and_nothing_else() -> None:
    backend = EmbeddedBackend(engine())
    chat = session(backend)
    log = io.StringIO()
    out = Output(as_json=False, stdout=io.StringIO(), stderr=log)

    def interrupt() -> None:
        while not backend._running()._jobs:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    # A shell starts what runs in its background with Ctrl-C ignored, and Python then leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        _answer(chat, "Go on for ever.", out)
        thread.join()
        driver = backend._running()
        assert driver.call(lambda: len(driver._jobs)).result(30) == 0
        assert "cancelled" in log.getvalue()
        assert chat.history == []
        chat.sampling = SamplingParams(max_tokens=2)
        _answer(chat, "And now?", out)
        assert len(chat.history) == 2
    finally:
        signal.signal(signal.SIGINT, before)
        backend.close()


def test_an_error_in_the_middle_of_an_answer_leaves_the_conversation_as_it_was() -> None:
    class Broken(FakeBackend):
        def stream(self, request: ChatRequest) -> Generator[StreamChunk, None, None]:
            yield StreamChunk("so far")
            raise InvalidInput("no further")

    chat = session(Broken())
    with pytest.raises(InvalidInput, match="no further"):
        list(chat.ask("Go."))
    assert chat.history == []


def test_the_line_accounts_for_every_live_token() -> None:
    spans = (
        SpanReport("document", "a.txt", 10, 60, "hit", 40),
        SpanReport("document", "b.txt", 60, 70, "live", 0, "shorter than 24 tokens"),
    )
    report = ReuseReport("hypic", 100, 60, 0, 40, spans, ttft_s=0.0126)
    assert reuse_line([report]) == (
        "reused 40 of 100 prompt tokens (40%), built 0, first token 13 ms; live: 40 between the parts, 10 in seams, "
        "10 in b.txt (shorter than 24 tokens)"
    )
    assert "reused 80 of 200 prompt tokens in 2 calls (40%)" in reuse_line([report, report])
    clock = VolatileText("Today is 2026-01-05.", 2, 9, "states the date or time")
    line = reuse_line([replace(report, volatile=(clock,))])
    assert "live: 33 between the parts" in line and line.endswith(", 7 in a sentence that states the date or time")


@pytest.mark.parametrize(
    ("expression", "value"),
    [("(2 + 3) * 4", "20"), ("-7 // 2", "-4"), ("1 / 8", "0.125"), ("2 ** 0.5", "1.41421356237"), (" 3 % 2 ", "1")],
)
def test_calculator(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["1 / 0", "9 ** 9 ** 9", "(-8) ** 0.5", "__import__('os')", "1 +", "x", "True", "'a' * 3", "1e308 * 10 // 1",
     "(" * 150 + "1", "1" * 201, "9" * 90 + "*" + "9" * 90 + "** 30"],
)  # fmt: skip
def test_the_calculator_refuses_what_is_no_number(expression: str, tmp_path: Path) -> None:
    call = ToolCall("calculator", {"expression": expression})
    assert str(run_tool(make_tools("calculator", tmp_path), call)).startswith("error: ")


def test_files_are_listed_and_read_below_the_root_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / ".hidden").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / ".hidden" / "key").write_text("key")
    (root / "sub" / "a.txt").write_text("text of a")
    (root / "b.bin").write_bytes(b"\xff\xfe")
    tools = make_tools("all", root)

    def run(name: str, **arguments: str) -> Any:
        return run_tool(tools, ToolCall(name, arguments))

    assert run("list_files") == "b.bin\nlink.txt\nsub/a.txt"
    assert run("read_file", path="sub/a.txt") == Segment("text of a", "file", "sub/a.txt")
    for path in ("../secret.txt", "link.txt", str(tmp_path / "secret.txt")):
        assert "outside of the folder" in run("read_file", path=path)
    for path in ("b.bin", "none.txt", "sub", "nul\0"):
        assert run("read_file", path=path).startswith("error: ")
    assert run("read_file", file="sub/a.txt") == "error: read_file takes the texts path"
    assert run("shell", command="ls") == "error: there is no tool 'shell'"
