"""When to come back."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.errors import InvalidInput
from hypic_agents.integrations.sglang import RetryPolicy
from hypic_agents.integrations.sglang.retry import retry_after

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@given(st.integers(1, 200), st.integers(0, 2**32))
def test_waits_grow_and_are_bounded(attempt: int, seed: int) -> None:
    policy = RetryPolicy(base_s=0.5, max_s=8.0)
    longest = min(0.5 * 2 ** (attempt - 1), 8.0)
    assert longest / 2 <= policy.wait_s(attempt, rng=random.Random(seed)) <= longest


def test_what_the_server_says_comes_first() -> None:
    policy = RetryPolicy(base_s=0.1, max_s=8.0)
    assert policy.wait_s(1, 5.0) == 5.0
    assert policy.wait_s(10, 1.0) >= 4.0
    assert math.isinf(policy.wait_s(1, 9.0))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("7", 7.0),
        (" 0 ", 0.0),
        ("soon", None),
        ("-1", None),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("", None),
    ],
)
def test_the_header_is_read_as_the_standard_has_it(value: str | None, expected: float | None) -> None:
    assert retry_after(value, NOW) == expected


def test_bad_policies_are_refused() -> None:
    with pytest.raises(InvalidInput):
        RetryPolicy(max_retries=-1)
