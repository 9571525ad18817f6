"""The documents that a store is warmed with, as a command names them: files, or a list of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hypic_agents.cli.documents import read_documents
from hypic_agents.core import Scope, Segment
from hypic_agents.errors import InvalidInput

Docs = Annotated[list[Path] | None, typer.Option("--doc", "-d", help="A text file; repeat for several.")]
Corpus = Annotated[
    Path | None,
    typer.Option(
        "--list", "-l", help="A file of documents: a path a line, or JSON with text or path, source_id, version."
    ),
]
System = Annotated[str | None, typer.Option("--system", help="System prompt; the model's own by default.")]
Version = Annotated[str, typer.Option("--version", help="Version of the documents that state none.")]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose documents they are.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="A group that may see them; repeat for several.")]

_FIELDS = {"text", "path", "source_id", "version"}


def read_corpus(paths: Sequence[Path], corpus: Path | None, *, version: str, scope: Scope) -> list[Segment]:
    """The documents of ``paths``, then those of the list, all in one scope.

    Args:
        paths: Text files; each is a source of its own name.
        corpus: A file with a document a line: a path (relative ones start where the list lies), or a JSON object with
            ``text`` or ``path``, and optionally ``source_id`` and ``version``. Empty lines are skipped.
        version: Of documents that state none.
        scope: Who may see them.

    Raises:
        InvalidInput: no document at all, a line that is none, or a file that cannot be read.
    """
    segments = [Segment(one.text, "document", one.source_id, version, scope) for one in read_documents(paths)]
    if corpus is not None:
        lines = _lines(corpus)
        segments += [_document(line, corpus, number, version, scope) for number, line in lines]
    if not segments:
        raise InvalidInput("no document; name files with --doc, or a list of them with --list")
    return segments


def _lines(corpus: Path) -> list[tuple[int, str]]:
    try:
        text = corpus.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read the list {corpus}: {error}") from error
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _document(line: str, corpus: Path, number: int, version: str, scope: Scope) -> Segment:
    if not line.startswith("{"):
        return _of_file(line, corpus, "", version, scope)
    try:
        raw: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise InvalidInput(f"{corpus}, line {number}: not JSON ({error})") from error
    if set(raw) - _FIELDS or not all(isinstance(value, str) for value in raw.values()):
        raise InvalidInput(f"{corpus}, line {number}: use texts for {', '.join(sorted(_FIELDS))}, and nothing else")
    if ("text" in raw) == ("path" in raw):
        raise InvalidInput(f"{corpus}, line {number}: give either text or path")
    version = raw.get("version", version)
    if "path" in raw:
        return _of_file(raw["path"], corpus, raw.get("source_id", ""), version, scope)
    if not raw["text"].strip():
        raise InvalidInput(f"{corpus}, line {number}: the text is empty")
    return Segment(raw["text"], "document", raw.get("source_id", ""), version, scope)


def _of_file(path: str, corpus: Path, source_id: str, version: str, scope: Scope) -> Segment:
    one = read_documents([corpus.parent / path])[0]
    return Segment(one.text, "document", source_id or path, version, scope)
