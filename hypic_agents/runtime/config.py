"""The engine's settings: the only place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.policy import PRESETS, ReusePolicy, parse_policy

__all__ = ["PRESETS", "EngineConfig", "ReusePolicy", "parse_policy"]

DTYPES = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine runs.

    Attributes:
        policy: Default reuse policy of requests, by name or as a value.
        model_dtype: "auto" (float32 on the CPU, bfloat16 on a GPU), "float32" or "bfloat16".
        device: "auto" (a GPU where there is one), or a torch device name.
        store_bytes: Budget of the segment store in bytes.
        max_batch: Most requests decoded together.
        max_pass_tokens: Most live tokens of one packed pass (a single longer prompt still runs alone).
        threads: CPU threads of torch; None leaves torch's own choice. ``HYPIC_THREADS`` sets the default.
        self_test: Compare two tokens with the untouched transformers forward at load.
    """

    policy: str | ReusePolicy = "hypic"
    model_dtype: str = "auto"
    device: str = "auto"
    store_bytes: int = 2 << 30
    max_batch: int = 32
    max_pass_tokens: int = 32_768
    threads: int | None = None
    self_test: bool = True

    def __post_init__(self) -> None:
        parse_policy(self.policy)
        if self.model_dtype not in DTYPES:
            raise InvalidInput(f"model_dtype={self.model_dtype!r}: use one of {', '.join(DTYPES)}")
        for name in ("max_batch", "max_pass_tokens"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name}={getattr(self, name)}: use 1 or more")
        if self.store_bytes < 0:
            raise InvalidInput(f"store_bytes={self.store_bytes}: use 0 or more")
        if self.threads is not None and self.threads < 1:
            raise InvalidInput(f"threads={self.threads}: use 1 or more")

    @property
    def default_policy(self) -> ReusePolicy:
        return parse_policy(self.policy)

    @property
    def num_threads(self) -> int | None:
        """Threads to use: the field, else ``HYPIC_THREADS``, else None."""
        raw = os.environ.get("HYPIC_THREADS", "")
        return self.threads if self.threads is not None else int(raw) if raw.isdigit() and int(raw) else None
