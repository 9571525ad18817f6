from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hypic_agents.cli import app
from tests.cli.fakes import FakeEngine, services

Invoke = Callable[..., Result]


@pytest.fixture
def invoke() -> Invoke:
    """Run a command in this process: ``invoke("ask", "...", engine=FakeEngine(...))``."""

    def run(*args: str, engine: FakeEngine | None = None, **others: Any) -> Result:
        injected = services(engine or FakeEngine(), **others)
        return CliRunner().invoke(app, list(args), obj=injected, catch_exceptions=False)

    return run
