from __future__ import annotations

from collections.abc import Iterator

import pytest

from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine


@pytest.fixture(scope="package")
def engine() -> Iterator[Engine]:
    """A random model with the bundled tokenizer: nothing here depends on what a model has learnt."""
    with Engine.load("random:qwen3_5:2m", EngineConfig(threads=1)) as loaded:
        yield loaded
