"""Which remote invalidations a directory has applied, in a small file beside its index. No torch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from uuid import uuid4

from hypic_agents.runtime.cache.connection import LOG
from hypic_agents.runtime.cache.remote import Known


def load_applied(path: Path | None) -> Known:
    """The numbers in that file; none if there is no file, or no readable one."""
    try:
        return tuple(int(number) for number in json.loads(path.read_bytes())) if path is not None else ()
    except FileNotFoundError:
        return ()
    except (OSError, TypeError, ValueError):  # then all calls are applied once more, which only costs builds
        LOG.warning("%s cannot be read; every remote invalidation is applied again", path)
        return ()


def save_applied(path: Path, applied: Known) -> None:
    """Write the file anew, whole or not at all, for its owner only; a failure is a warning."""
    draft = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(applied, file)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        LOG.warning("%s cannot be written; its invalidations are applied again later: %s", path, error)
