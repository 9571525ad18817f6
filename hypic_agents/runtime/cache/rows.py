"""Rows of the disk tier's index. No torch.

Each row carries a checksum, because a row whose sources changed unnoticed would escape an invalidation.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from hypic_agents.runtime.cache.container import DamagedFile
from hypic_agents.runtime.cache.record import EntryInfo

ROW_COLUMNS = "name, draft, file_bytes, info, sum, uses, priority, created, used"


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One file: published if ``draft`` is empty, else being written under that name.

    Attributes:
        file_bytes: What the file takes, or will take.
        info: What it holds; None if the row is not what was written.
        uses, priority, created, used: For eviction and for people; times are seconds since 1970.
    """

    name: str
    draft: str
    file_bytes: int
    info: EntryInfo | None
    uses: int
    priority: float
    created: float
    used: float


@dataclass(frozen=True, slots=True)
class Departure:
    """Why an entry is no longer on the disk."""

    name: str
    reason: str
    info: EntryInfo | None
    at: float


def read_row(
    name: str, draft: str, file_bytes: int, info: str, checksum: str, uses: int, priority: float, *times: float
) -> IndexRow:
    """A row from its columns, whatever became of them."""
    if checksum != row_sum(name, draft, file_bytes, info):
        return IndexRow(str(name), "", _number(file_bytes), None, 0, 0.0, 0.0, 0.0)
    return IndexRow(
        name, draft, file_bytes, read_info(info), _number(uses), float(_number(priority)), *map(_number, times)
    )


def _number(value: object) -> Any:
    """A flipped bit may have changed a value's very type."""
    return value if isinstance(value, (int, float)) else 0


def row_sum(*fields: object) -> str:
    """The checksum of a row's lasting fields."""
    return blake2b(repr(fields).encode(), digest_size=16).hexdigest()


def read_info(text: str) -> EntryInfo | None:
    """A description, or None if it is not one."""
    try:
        return EntryInfo.from_json(text)
    except DamagedFile:
        return None
