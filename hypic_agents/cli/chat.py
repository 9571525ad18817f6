"""``hypic-agents chat``: a conversation over files, with tools, in the terminal or through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer
from rich.console import Console

from hypic_agents.cli import options
from hypic_agents.cli.chat_session import ChatSession, ToolResult, Turn
from hypic_agents.cli.chat_tools import make_tools
from hypic_agents.cli.documents import DocumentNotFound, read_documents
from hypic_agents.cli.output import Output, command
from hypic_agents.completion import ReuseReport, StreamChunk
from hypic_agents.core import SamplingParams, Segment
from hypic_agents.errors import HypicError, InvalidInput
from hypic_agents.runtime.embedded import EmbeddedBackend

# With none, the files would stand at the very beginning of the first prompt, and behind other words from then on.
SYSTEM: Final = "You are a careful assistant. Use only the documents and tools. Without an answer, reply: not stated."
HELP: Final = """\
/add FILE    put a text file before the next question
/drop [FILE] take a file out again, or all of them
/files       show the files
/reset       forget what was said
/quit        end (as Ctrl-D does)
Ctrl-C       cancel the answer"""

_SHOWN_LEN: Final = 60


def chat(
    ctx: typer.Context,
    doc: Annotated[list[Path] | None, typer.Option("--doc", "-d", help="A text file; repeat for several.")] = None,
    tools: Annotated[
        str, typer.Option("--tools", help="Tools for the model: all, or list_files,read_file,calculator.")
    ] = "",
    root: Annotated[Path, typer.Option("--root", help="Folder whose files the tools may read.")] = Path(),
    system: Annotated[str, typer.Option("--system", help="System prompt; '' for none.")] = SYSTEM,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest answer, in tokens.")] = 256,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")] = 0.0,
    seed: options.Seed = 0,
    model: options.Model = "tiny",
    policy: options.Policy = "hypic",
    threads: options.Threads = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each answer; all else goes to stderr.")
    ] = False,
) -> None:
    """Talk over files, with tools, and see what every answer reused. Type /help for the commands."""
    with command(as_json=json) as out:
        documents = read_documents(doc or [])
        chosen = make_tools(tools, root) if tools else ()
        with options.open_engine(ctx, out, model=model, policy=policy, threads=threads) as engine:
            backend = EmbeddedBackend(engine)
            sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
            session = ChatSession(backend, sampling, policy, system or None, chosen)
            for document in documents:
                session.add(document)
            try:
                _talk(session, out)
            finally:
                backend.close()


def _talk(session: ChatSession, out: Output) -> None:
    for line in _lines(sys.stdin, out):
        try:
            if line.startswith("/"):
                if not _obey(session, line, out):
                    return
            else:
                _answer(session, line, out)
        except HypicError as error:
            out.error(error)


def _lines(stdin: TextIO, out: Output) -> Iterator[str]:
    """What the user says, line by line, stripped; blank lines are left out."""
    if not stdin.isatty():
        # A line that is no UTF-8 must fail alone: its characters become surrogates, which are refused later on.
        if hasattr(stdin, "reconfigure"):
            stdin.reconfigure(errors="surrogateescape")
        yield from filter(None, map(str.strip, stdin))
        return
    with suppress(ImportError):
        import readline  # noqa: F401  gives input() a history and the usual keys
    out.log.print("/help shows the commands", style="dim")
    while True:
        try:
            line = input("> ").strip()
        except KeyboardInterrupt:
            out.log.print("\n/quit or Ctrl-D ends the conversation", style="dim")
        except EOFError:
            out.log.print()
            return
        else:
            if line:
                yield line


def _obey(session: ChatSession, line: str, out: Output) -> bool:
    """Carry out a command; False to end the conversation."""
    name, _, rest = line.partition(" ")
    rest = rest.strip()
    commands: dict[str, Callable[[], object]] = {
        "/add": lambda: _add(session, rest, out),
        "/drop": lambda: session.drop(rest) if rest else session.documents.clear(),
        "/files": lambda: _show_files(session, out),
        "/reset": session.reset,
        "/help": lambda: out.log.print(HELP, markup=False),
        "/quit": lambda: None,
    }
    if name not in commands:
        raise InvalidInput(f"unknown command {name}; the commands are {', '.join(commands)}")
    commands[name]()
    return name != "/quit"


def _add(session: ChatSession, name: str, out: Output) -> None:
    if not name:
        raise InvalidInput("/add needs the name of a file")
    if not Path(name).exists():
        raise DocumentNotFound(f"no file at {name}; /add takes the path of a text file")
    for document in read_documents([Path(name)]):
        session.add(document)
        _show_file(session, document, out)


def _show_files(session: ChatSession, out: Output) -> None:
    for document in session.documents:
        _show_file(session, document, out)
    if not session.documents:
        out.log.print("no files; /add FILE takes one", style="dim")


def _show_file(session: ChatSession, document: Segment, out: Output) -> None:
    count = len(session.backend.token_ids(document.text))
    out.log.print(f"{document.source_id}  {count} tokens", markup=False, soft_wrap=True)


def _answer(session: ChatSession, question: str, out: Output) -> None:
    """Ask, and show the answer as it comes. Ctrl-C ends the answer and nothing else."""
    try:
        with closing(session.ask(question)) as pieces:
            for piece in pieces:
                if isinstance(piece, Turn):
                    out.result(_as_dict(piece), partial(_show_turn, piece))
                elif not out.as_json:
                    _show_piece(piece, out)
    except KeyboardInterrupt:
        out.log.print("\ncancelled; the question is forgotten", style="dim")


def _show_piece(piece: StreamChunk | ToolResult, out: Output) -> None:
    if isinstance(piece, StreamChunk):
        out.console.print(piece.reasoning, end="", style="dim", markup=False, soft_wrap=True)
        out.console.print(piece.text, end="", markup=False, soft_wrap=True)
        return
    arguments = ", ".join(f"{name}={value!r}" for name, value in piece.call.arguments.items())
    first = piece.text.strip().partition("\n")[0]
    shown = first if len(first) <= _SHOWN_LEN else f"{first[:_SHOWN_LEN]}..."
    out.console.print(f"[{piece.call.name}({arguments}) gives: {shown}]", style="dim", markup=False, soft_wrap=True)


def _show_turn(turn: Turn, console: Console) -> None:
    console.print()
    for call in turn.last.invalid_tool_calls:
        console.print(f"(a call of {call.name} is no valid one: {call.error})", style="dim", markup=False)
    line = reuse_line([completion.report for completion in turn.completions])
    console.print(line, style="dim", markup=False, soft_wrap=True)


def _as_dict(turn: Turn) -> dict[str, Any]:
    return {
        "question": turn.question,
        "answer": turn.last.text,
        "finish_reason": turn.last.finish_reason,
        "tools": [
            {"name": result.call.name, "arguments": result.call.arguments, "result": result.text}
            for result in turn.results
        ],
        "usage": turn.usage,
        "reports": [completion.report for completion in turn.completions],
    }


def reuse_line(reports: Sequence[ReuseReport]) -> str:
    """What the requests of one answer reused, and what they computed: between the parts, in seams, in whole parts, in
    text that changes with every request."""
    prompt, reused, built, live = (
        sum(getattr(report, f"{name}_tokens") for report in reports) for name in ("prompt", "reused", "cold", "live")
    )
    spans = [span for report in reports for span in report.spans]
    whole = [span for span in spans if span.state == "live"]
    # An exact prefix covers the chat template's words before its segment too.
    seams = sum(max(0, span.end - span.start - span.composed_tokens) for span in spans if span.state != "live")
    volatile = [text for report in reports for text in report.volatile]
    between = live - seams - sum(one.end - one.start for one in whole) - sum(one.end - one.start for one in volatile)
    parts = [f"{between} between the parts", f"{seams} in seams"]
    parts += [f"{span.end - span.start} in {span.source_id or span.kind} ({span.reason})" for span in whole]
    parts += [f"{text.end - text.start} in a sentence that {text.reason}" for text in volatile]
    calls = f" in {len(reports)} calls" if len(reports) > 1 else ""
    return (
        f"reused {reused} of {prompt} prompt tokens{calls} ({reused / prompt:.0%}), built {built}, "
        f"first token {reports[0].ttft_s * 1000:.0f} ms; live: {', '.join(parts)}"
    )
