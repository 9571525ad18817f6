"""What the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hypic_agents.runtime.shared import close_shared


@pytest.fixture(scope="package", autouse=True)
def _engines() -> Iterator[None]:
    """Loaded once for the whole folder, closed behind it."""
    yield
    close_shared()
