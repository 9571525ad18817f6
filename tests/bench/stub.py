"""An engine on random weights without a tokenizer: benchmarks make prompts of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.models.registry import load_model


class NoTokenizer:
    """Decodes to digits and never ends an answer."""

    eos_token_ids: frozenset[int] = frozenset()
    byte_token_ids: frozenset[int] = frozenset()

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


def random_engine(size: str = "2m", **config: Any) -> Engine:
    loaded = load_model(f"random:qwen3_5:{size}", EngineConfig(**config))
    tokenizer: Any = NoTokenizer()
    return Engine(loaded.model, tokenizer, loaded.fingerprint, EngineConfig(**config), name=loaded.name)
