"""What may be kept at all, so that segments that never come again do not flush those that do. Pure; no torch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from hypic_agents.errors import InvalidInput

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether an entry may enter a tier. The default admits whatever fits.

    Attributes:
        second_touch: Once something would have to leave for it, an entry is kept only if its key was offered or found
            before. While there is room, everything is kept.
        min_tokens: Shorter segments are not kept: building them again costs little.
        max_share: Entries larger than this share of the tier's budget are not kept.

    Raises:
        InvalidInput: a negative length, or a share outside ``(0, 1]``.
    """

    second_touch: bool = False
    min_tokens: int = 0
    max_share: float = 1.0

    def __post_init__(self) -> None:
        if self.min_tokens < 0:
            raise InvalidInput(f"min_tokens={self.min_tokens}: use 0 or more")
        if not 0 < self.max_share <= 1:
            raise InvalidInput(f"max_share={self.max_share}: use a share above 0 and up to 1")

    def refusal(self, *, num_tokens: int, nbytes: int, budget_bytes: int, seen: bool, must_evict: bool) -> str:
        """Why an entry is not kept; empty if it is.

        Args:
            num_tokens: Its length.
            nbytes: What it takes in the tier.
            budget_bytes: What the tier may take.
            seen: Its key was offered or found before.
            must_evict: Something would have to leave for it.
        """
        if num_tokens < self.min_tokens:
            return f"shorter than {self.min_tokens} tokens"
        if nbytes > self.max_share * budget_bytes:
            return f"larger than {self.max_share:.0%} of the budget"
        if self.second_touch and must_evict and not seen:
            return "not seen before"
        return ""


class TouchHistory(Generic[K]):
    """How often keys were touched lately, also those that are not kept.

    All counts are halved every ``10 * capacity`` touches, so that what was popular once does not stay so for ever. Of
    more than ``capacity`` keys, the longest untouched is forgotten.
    """

    def __init__(self, capacity: int = 8192) -> None:
        self._capacity = capacity
        self._counts: OrderedDict[K, int] = OrderedDict()
        self._touches = 0

    def __getitem__(self, key: K) -> int:
        return self._counts.get(key, 0)

    def __len__(self) -> int:
        return len(self._counts)

    def touch(self, key: K) -> int:
        """Count one touch; returns the count with it."""
        self._touches += 1
        if self._touches >= 10 * self._capacity:
            self._touches = 0
            self._counts = OrderedDict((each, count // 2) for each, count in self._counts.items() if count > 1)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        self._counts.move_to_end(key)
        if len(self._counts) > self._capacity:
            self._counts.popitem(last=False)
        return count
