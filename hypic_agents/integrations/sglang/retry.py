"""When to try again: exponential backoff with jitter, and what a server says in ``Retry-After``."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from hypic_agents.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How calls that change nothing are repeated. A question is repeated only as often as its request says.

    Attributes:
        max_retries: Further tries after the first.
        base_s: Longest wait before the first of them, in seconds; it doubles with each.
        max_s: Longest wait at all, in seconds; a server that asks for more is not tried again.
    """

    max_retries: int = 2
    base_s: float = 0.25
    max_s: float = 8.0

    def __post_init__(self) -> None:
        if self.max_retries < 0 or self.base_s < 0 or self.max_s < 0:
            raise InvalidInput(f"{self}: use 0 or more")

    def wait_s(self, attempt: int, retry_after_s: float | None = None, *, rng: random.Random | None = None) -> float:
        """Seconds to wait before try ``attempt`` (from 1); infinite where the server asks for more than ``max_s``.

        At least half of the backoff is waited, the rest is drawn, so that clients do not come back together.
        """
        if retry_after_s is not None and retry_after_s > self.max_s:
            return float("inf")
        longest = min(self.base_s * 2.0 ** min(attempt - 1, 30), self.max_s)
        share = (rng or random).uniform(0.5, 1.0)
        return max(longest * share, retry_after_s or 0.0)


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds named by a ``Retry-After`` header: a number, or a date of RFC 9110. None where it says nothing."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())
