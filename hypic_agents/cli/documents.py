"""Files on disk to document segments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypic_agents.core import Segment
from hypic_agents.errors import InvalidInput


class DocumentNotFound(InvalidInput):
    """A document file that does not exist."""


class DocumentUnreadable(InvalidInput):
    """A document that is no readable UTF-8 text file, or an empty one."""


def read_documents(paths: Sequence[Path]) -> list[Segment]:
    """One segment a file, in the order given.

    Raises:
        DocumentNotFound: a path that does not exist.
        DocumentUnreadable: a folder, a file without permission, text that is not UTF-8, or nothing in it.
    """
    return [Segment(_read(path), kind="document", source_id=str(path)) for path in paths]


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DocumentNotFound(f"no document at {path}; check the path given to --doc") from error
    except UnicodeDecodeError as error:
        raise DocumentUnreadable(f"{path} is not UTF-8 text; convert it before passing it to --doc") from error
    except OSError as error:
        raise DocumentUnreadable(f"cannot read {path}: {error.strerror or error}") from error
    if not text.strip():
        raise DocumentUnreadable(f"{path} is empty; leave it out or give it text")
    return text
