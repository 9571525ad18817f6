"""One engine a model for the whole process, however many objects of a framework name it. No torch."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.embedded import EmbeddedBackend

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

_backends: dict[tuple[str, EngineConfig], EmbeddedBackend] = {}
_lock = threading.Lock()


def shared_backend(model: str = "tiny", config: EngineConfig | None = None) -> EmbeddedBackend:
    """The process's backend for a model and a configuration (device, dtype, budgets, default policy, ...).

    Nothing is loaded before the first request. ``close()`` frees the model for everyone; the next call of this function
    makes a new backend. A child process after ``fork`` starts with none.
    """
    config = config or EngineConfig()
    path = Path(model)
    key = (str(path.resolve()) if path.is_dir() else model, config)
    with _lock:
        backend = _backends.get(key)
        if backend is None or backend.closed:
            backend = _backends[key] = EmbeddedBackend(partial(_load, model, config))
        return backend


def close_shared() -> None:
    """Close every shared backend."""
    with _lock:
        backends = list(_backends.values())
        _backends.clear()
    for backend in backends:
        backend.close()


def _load(model: str, config: EngineConfig) -> Engine:
    from hypic_agents.runtime.engine import Engine

    return Engine.load(model, config)


def _forget() -> None:
    # Threads do not survive a fork, and the copied locks may be held for ever.
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _backends.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
