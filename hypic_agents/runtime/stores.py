"""The store that a configuration asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hypic_agents.runtime.cache.admission import Admission
from hypic_agents.runtime.cache.bucket import open_bucket
from hypic_agents.runtime.cache.disk import DiskTier
from hypic_agents.runtime.cache.eviction import eviction_rule
from hypic_agents.runtime.cache.memory import MemoryStore
from hypic_agents.runtime.cache.remote import RemoteTier
from hypic_agents.runtime.cache.remote_store import RemoteStore
from hypic_agents.runtime.cache.tiered import TieredStore
from hypic_agents.runtime.compact import CompactingStore, Compaction
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.payload_codec import SegmentCodec

if TYPE_CHECKING:
    import torch

    from hypic_agents.runtime.cache.base import LocalStore, SegmentStore


def make_store(config: EngineConfig, device: torch.device) -> SegmentStore:
    """Memory alone, or over a directory, a remote place or both; with rounded payloads if asked for.

    Raises:
        InvalidInput: the URL cannot be used.
        StoreUnavailable: the directory cannot be used.
    """
    compaction = Compaction(config.state_numbers, config.drop_transition_below, config.transition_low_rank_within)
    eviction = eviction_rule(config.eviction)
    admission = Admission(second_touch=config.second_touch)
    store: LocalStore | RemoteStore
    store = memory = MemoryStore(config.store_bytes, eviction=eviction, admission=admission)
    codec = SegmentCodec(device, compaction.numbers)
    bucket = open_bucket(config.store_url) if config.store_url is not None else None
    if config.store_dir is not None:
        disk = DiskTier(config.store_dir, config.disk_bytes, codec, eviction=eviction, admission=admission)
        store = TieredStore(memory, disk)
    if bucket is not None:
        applied = Path(config.store_dir) / "remote-applied.json" if config.store_dir is not None else None
        remote = RemoteTier(bucket, codec, timeout_s=config.store_timeout_s)
        store = RemoteStore(store, remote, applied_path=applied)
    return store if compaction == Compaction() else CompactingStore(store, compaction)
