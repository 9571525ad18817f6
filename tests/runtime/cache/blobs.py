"""Payloads without torch: bytes, and the codec that writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypic_agents.core import Scope
from hypic_agents.runtime.cache.admission import Admission
from hypic_agents.runtime.cache.container import RawTensor
from hypic_agents.runtime.cache.disk import DiskTier
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey

DEFAULT = Scope()


@dataclass(eq=False)
class Blob:
    data: bytes

    @property
    def nbytes(self) -> int:
        return len(self.data)


class BlobCodec:
    def encode(self, payload: Any) -> tuple[dict[str, Any], dict[str, RawTensor]]:
        return {}, {"0.data": RawTensor("U8", (len(payload.data),), payload.data)}

    def decode(self, described: Mapping[str, Any], tensors: Mapping[str, RawTensor]) -> Blob:
        return Blob(bytes(tensors["0.data"].data))


def make(
    token: int,
    nbytes: int = 100,
    *,
    source_id: str = "",
    version: str = "",
    scope: Scope = DEFAULT,
    depends_on: tuple[tuple[str, str], ...] = (),
    build_s: float = 0.1,
) -> SegmentEntry:
    key = SegmentKey.of((token,), model="m", recipe="r", scope=scope)
    data = (b"%06d" % token * (nbytes // 6 + 1))[:nbytes]
    return SegmentEntry(key, (token,), Blob(data), source_id, version, depends_on, build_s)


def open_tier(root: Path, budget: int = 1 << 20, **options: Any) -> DiskTier:
    options = {"durable": False, "admission": Admission()} | options
    return DiskTier(root, budget, BlobCodec(), **options)


def file_bytes(entry: SegmentEntry) -> int:
    """What an entry takes on the disk."""
    from hypic_agents.runtime.cache.record import to_file

    return to_file(entry, BlobCodec())[1].num_bytes


def same(found: SegmentEntry | None, entry: SegmentEntry) -> bool:
    """Whether ``found`` is ``entry`` as it comes back from the disk."""
    return (
        found is not None
        and (found.key, found.token_ids, found.sources, found.build_s, found.nbytes)
        == (entry.key, entry.token_ids, entry.sources, entry.build_s, entry.nbytes)
        and found.payload.data == entry.payload.data
    )
