"""What a model's files say without loading its weights. No torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BUNDLED = Path(__file__).resolve().parents[2] / "models_data"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model at a glance.

    Attributes:
        window: Longest sequence in tokens; None where the files are not on this machine.
        revision: Changes whenever the weights do; empty where unknown.
    """

    window: int | None = None
    revision: str = ""


def describe(model: str) -> ModelFiles:
    """Of ``tiny``, a directory, a hub name that was downloaded before, or ``random:FAMILY[:SIZE]``."""
    if model.startswith("random:"):
        return ModelFiles(262_144, model)
    for folder in (_BUNDLED / f"hypic-{model}", Path(model)):
        if (folder / "config.json").is_file():
            return ModelFiles(_window(folder / "config.json"), _digest(folder))
    config = _cached(model)
    return ModelFiles() if config is None else ModelFiles(_window(config), config.parent.name)


def _cached(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def _window(config: Path) -> int | None:
    try:
        values: Any = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    inner = values.get("text_config", values)
    window = inner.get("max_position_embeddings")
    return window if isinstance(window, int) else None


def _digest(folder: Path) -> str:
    """Of the weight files' names, sizes and times: what changes when weights are replaced."""
    stats = ((path.name, path.stat()) for path in sorted(folder.glob("*.safetensors")))
    return hashlib.sha256(repr([(n, s.st_size, s.st_mtime_ns) for n, s in stats]).encode()).hexdigest()[:16]
