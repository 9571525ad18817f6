"""The store that a configuration asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypic_agents.runtime.cache.admission import Admission
from hypic_agents.runtime.cache.disk import DiskTier
from hypic_agents.runtime.cache.eviction import eviction_rule
from hypic_agents.runtime.cache.memory import MemoryStore
from hypic_agents.runtime.cache.tiered import TieredStore
from hypic_agents.runtime.compact import CompactingStore, Compaction
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.payload_codec import SegmentCodec

if TYPE_CHECKING:
    import torch

    from hypic_agents.runtime.cache.base import SegmentStore


def make_store(config: EngineConfig, device: torch.device) -> SegmentStore:
    """Memory alone, or memory over a directory; with rounded payloads if asked for.

    Raises:
        StoreUnavailable: the directory cannot be used.
    """
    compaction = Compaction(config.state_numbers, config.drop_transition_below)
    eviction = eviction_rule(config.eviction)
    admission = Admission(second_touch=config.second_touch)
    store: SegmentStore
    store = memory = MemoryStore(config.store_bytes, eviction=eviction, admission=admission)
    if config.store_dir is not None:
        codec = SegmentCodec(device, compaction.numbers)
        disk = DiskTier(config.store_dir, config.disk_bytes, codec, eviction=eviction, admission=admission)
        store = TieredStore(memory, disk)
    return store if compaction == Compaction() else CompactingStore(store, compaction)
