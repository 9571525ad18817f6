"""What changes during a run, written so that a resumed run goes on as if it had never stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from hypic_agents.errors import InvalidInput
from training.native.config import NativeConfig
from training.native.optimiser import Optimiser

# A resumed run may be longer, log more often, or compute in smaller passes.
_FREE = ("steps", "minutes", "log_every_steps", "checkpoint_every_s", "tokens_per_pass", "recompute_layers")
_PROGRESS = ("step", "tokens", "consumed", "elapsed_s", "before", "written")


def settings_of(config: NativeConfig, **inputs: str) -> dict[str, Any]:
    """What must not change between the parts of a run: the recipe, and what names its inputs."""
    recipe = {name: value for name, value in asdict(config).items() if name not in _FREE}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in (recipe | inputs).items()}


@dataclass(slots=True)
class Run:
    """The state of a run. Random choices follow from seed and step alone.

    Attributes:
        optimiser: The trained weights and their moments.
        settings: From :func:`settings_of`.
        step: Updates done.
        tokens: Tokens of all examples seen.
        consumed: Examples seen.
        elapsed_s: Seconds spent in training.
        before: The evaluation made before the first step, or None.
        written: What the model wrote behind prompts without an answer, before the first step: for each set of data,
            the answer tokens of every example.
    """

    optimiser: Optimiser
    settings: dict[str, Any]
    step: int = 0
    tokens: int = 0
    consumed: int = 0
    elapsed_s: float = 0.0
    before: dict[str, Any] | None = None
    written: dict[str, list[list[int]]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write atomically: an interrupted write leaves the previous checkpoint."""
        partial = path.with_suffix(".partial")
        own = {name: getattr(self, name) for name in ("settings", *_PROGRESS)}
        torch.save(own | self.optimiser.state(), partial)
        partial.replace(path)

    def load(self, path: Path) -> None:
        """Continue from what ``save`` wrote.

        Raises:
            InvalidInput: no checkpoint, or one of a run with other settings.
        """
        state = _read(path)
        for name, value in self.settings.items():
            if state["settings"].get(name) != value:
                raise InvalidInput(
                    f"{path} was made with {name}={state['settings'].get(name)!r}, not {value!r}; resume with the same "
                    "settings or start anew in another directory"
                )
        self.optimiser.restore(state)
        for name in _PROGRESS:
            setattr(self, name, state[name])


def _read(path: Path) -> Mapping[str, Any]:
    if not path.exists():
        raise InvalidInput(f"nothing to resume: there is no {path}")
    state: Mapping[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    return state
