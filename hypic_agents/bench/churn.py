"""How a full store fares with documents that come, go and change, against LRU and a store that knows the future."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypic_agents.bench.churn_trace import Access, Sizes, Trace, make_trace, offline_hits
from hypic_agents.bench.timing import Progress
from hypic_agents.core import Scope
from hypic_agents.errors import HypicError, InvalidInput
from hypic_agents.runtime.cache.admission import Admission
from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.cache.container import RawTensor
from hypic_agents.runtime.cache.disk import DiskTier
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.eviction import GDSF, LRU
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.memory import MemoryStore
from hypic_agents.runtime.cache.tiered import TieredStore

# Files of the run on the disk are this much smaller than the segments they stand for.
_DISK_SCALE = 64
_MEMORY_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class _Sized:
    """A payload of which only the size matters."""

    nbytes: int


class _SizedCodec:
    def encode(self, payload: Any) -> tuple[dict[str, Any], dict[str, RawTensor]]:
        return {}, {"0.data": RawTensor("U8", (payload.nbytes,), bytes(payload.nbytes))}

    def decode(self, described: Mapping[str, Any], tensors: Mapping[str, RawTensor]) -> _Sized:  # noqa: ARG002
        return _Sized(len(tensors["0.data"].data))


@dataclass(slots=True)
class _Count:
    """What one store did with the trace."""

    hits: int = 0
    bytes_read: int = 0
    bytes_built: int = 0
    saved_s: float = 0.0
    built_s: float = 0.0
    peak_bytes: int = 0
    stale_probes: int = 0
    versions: dict[int, int] = field(default_factory=dict)

    def add(self, *, hit: bool, nbytes: int, build_s: float) -> None:
        self.hits += hit
        self.bytes_read += nbytes * hit
        self.bytes_built += nbytes * (not hit)
        self.saved_s += build_s * hit
        self.built_s += build_s * (not hit)

    def row(self, policy: str, requests: int) -> dict[str, Any]:
        return {
            "policy": policy,
            "hit_rate": self.hits / requests,
            "byte_hit_rate": self.bytes_read / (self.bytes_read + self.bytes_built),
            "saved_build_share": self.saved_s / (self.saved_s + self.built_s),
            "bytes_read": self.bytes_read,
            "bytes_built": self.bytes_built,
            "peak_bytes": self.peak_bytes,
        }


def run(
    *,
    progress: Progress,
    requests: int = 2_000,
    documents: int = 500,
    one_off_share: float = 0.05,
    update_share: float = 0.02,
    budget_share: float = 0.2,
    skew: float = 1.0,
    seed: int = 0,
    sizes: Sizes = Sizes(),  # noqa: B008  (frozen)
) -> dict[str, Any]:
    """Drive the real stores through one trace, and count.

    Rows: plain LRU; GDSF alone; GDSF with admission at the second touch, as engines run it; the same over a directory,
    with a quarter of the budget in memory and all of it on the disk (files are smaller by a constant factor); and
    greedy Belady by bytes, which knows the future.

    Args:
        progress: Told of stages and requests.
        requests, documents, one_off_share, update_share, skew, seed: See :func:`make_trace`.
        budget_share: Budget as a share of what all documents that may come again would take together.
        sizes: Bytes and seconds of segments.

    Raises:
        InvalidInput: settings that make no trace.
        HypicError: a budget was exceeded, or an old version was found after it had been invalidated.
    """
    if not 0 < budget_share <= 1:
        raise InvalidInput(f"budget_share={budget_share}: use a share above 0 and up to 1")
    trace = make_trace(
        requests=requests,
        documents=documents,
        one_off_share=one_off_share,
        update_share=update_share,
        skew=skew,
        seed=seed,
    )
    corpus = sum(map(sizes.nbytes, trace.lengths))
    budget = int(budget_share * corpus)
    second = Admission(second_touch=True)
    stores: dict[str, Callable[[], SegmentStore]] = {
        "lru": lambda: MemoryStore(budget, eviction=LRU()),
        "gdsf": lambda: MemoryStore(budget, eviction=GDSF()),
        "gdsf, second touch": lambda: MemoryStore(budget, eviction=GDSF(), admission=second),
    }
    counts = {name: _drive(make(), trace, sizes, 1, progress, name) for name, make in stores.items()}
    with tempfile.TemporaryDirectory() as folder:
        small = budget // _DISK_SCALE
        memory = MemoryStore(int(_MEMORY_SHARE * small), eviction=GDSF(), admission=second)
        disk = DiskTier(Path(folder), small, _SizedCodec(), admission=second, durable=False)
        counts["memory and disk"] = _drive(TieredStore(memory, disk), trace, sizes, _DISK_SCALE, progress, "disk")
    counts["optimum (greedy Belady by bytes)"] = _offline(trace.accesses, sizes, budget)
    rows = [count.row(name, requests) for name, count in counts.items()]
    rates = {name: count.hits / requests for name, count in counts.items()}
    ours = counts["gdsf, second touch"]
    return {
        "rows": rows,
        "requests": requests,
        "documents": documents,
        "one_offs": sum(access.document >= documents for access in trace.accesses),
        "updates": sum(len(access.updated) for access in trace.accesses),
        "corpus_bytes": corpus,
        "budget_bytes": budget,
        "hit_rate": rates["gdsf, second touch"],
        "hit_rate_vs_lru": rates["gdsf, second touch"] / rates["lru"] if rates["lru"] else None,
        "hit_rate_vs_optimum": rates["gdsf, second touch"] / max(rates["optimum (greedy Belady by bytes)"], 1e-9),
        "budget_exceeded": 0,
        "stale_probes": ours.stale_probes,
        "stale_served": 0,
        "disk_scale": _DISK_SCALE,
        "seed": seed,
        "skew": skew,
    }


def _drive(store: SegmentStore, trace: Trace, sizes: Sizes, scale: int, progress: Progress, name: str) -> _Count:
    """Run the trace against a store; bytes are counted as the segments', whatever the files' scale."""
    count = _Count()
    for at, access in enumerate(trace.accesses):
        for document in access.updated:
            _update(store, document, trace.lengths[document], count)
        entry = _entry(access, sizes, scale)
        since = store.epoch
        found = store.acquire(entry.key, entry.token_ids)
        used = found or store.insert(entry, pin=True, since=since)
        if used.version != _version(access.version):
            raise HypicError(f"document {access.document} was served in version {used.version}, not {access.version}")
        store.release(used)
        if found is None:
            store.flush()  # the disk's thread would make the counts depend on the machine's speed
        count.add(hit=found is not None, nbytes=sizes.nbytes(access.tokens), build_s=entry.build_s)
        _check_budget(store, count, scale)
        if (at + 1) % 100 == 0 or at + 1 == len(trace.accesses):
            progress(name, at + 1, len(trace.accesses))
    store.check_integrity()
    store.close()
    return count


def _update(store: SegmentStore, document: int, tokens: int, count: _Count) -> None:
    """A new version comes; none of the old ones may be found any more."""
    version = count.versions[document] = count.versions.get(document, 0) + 1
    store.invalidate(source_id=str(document), version_before=_version(version))
    for old in range(version):
        key, ids = _key(Access(document, old, tokens))
        count.stale_probes += 1
        if store.acquire(key, ids) is not None:
            raise HypicError(f"version {old} of document {document} is served after version {version} came")


def _check_budget(store: SegmentStore, count: _Count, scale: int) -> None:
    stats = store.stats()
    if stats.held_bytes > stats.budget_bytes or stats.disk_bytes > stats.disk_budget_bytes:
        raise HypicError(f"a budget is exceeded: {stats}")
    count.peak_bytes = max(count.peak_bytes, scale * (stats.disk_bytes or stats.held_bytes))


def _offline(accesses: Sequence[Access], sizes: Sizes, budget: int) -> _Count:
    count = _Count()
    nbytes = [sizes.nbytes(access.tokens) for access in accesses]
    for access, size, hit in zip(accesses, nbytes, offline_hits(accesses, nbytes, budget), strict=True):
        count.add(hit=hit, nbytes=size, build_s=sizes.build_s(access.tokens))
    count.peak_bytes = budget
    return count


def _entry(access: Access, sizes: Sizes, scale: int) -> SegmentEntry:
    key, ids = _key(access)
    payload = _Sized(sizes.nbytes(access.tokens) // scale)
    return SegmentEntry(
        key, ids, payload, str(access.document), _version(access.version), build_s=sizes.build_s(access.tokens)
    )


def _key(access: Access) -> tuple[SegmentKey, tuple[int, ...]]:
    """Two ids stand for the text: what a document and its version are."""
    ids = (access.document, access.version)
    return SegmentKey.of(ids, model="churn", recipe="", scope=Scope()), ids


def _version(number: int) -> str:
    """Versions sort as strings."""
    return f"{number:06d}"
