"""Laws 6 and 7 with a disk below: any order of verbs, over two stores that share a directory, conserves and serves
nothing invalidated, and a store that is opened again finds only what may be found."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from hypic_agents.core import Scope
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.eviction import GDSF
from hypic_agents.runtime.cache.memory import MemoryStore
from hypic_agents.runtime.cache.tiered import TieredStore
from tests.runtime.cache.blobs import file_bytes, make, open_tier

MEMORY = 250
DISK = 3 * file_bytes(make(100_000, 100, source_id="doc", version="1")) + 100
SCOPES = st.sampled_from([Scope("a"), Scope("b"), Scope("a", frozenset({"g"}))])
WHO = st.integers(0, 1)


class TieredMachine(RuleBasedStateMachine):
    """``valid``: contents (key and ids) that were offered and not invalidated since. Anything found is one of them."""

    made = Bundle("made")
    pinned = Bundle("pinned")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.stores = [self.open(), self.open()]
        self.pins: Counter[tuple[int, SegmentEntry]] = Counter()
        self.since: dict[SegmentEntry, list[int]] = {}
        self.dead: set[SegmentEntry] = set()

    def open(self) -> TieredStore:
        return TieredStore(MemoryStore(MEMORY, eviction=GDSF()), open_tier(self.root, DISK))

    @rule(
        target=made,
        token=st.integers(0, 4),
        scope=SCOPES,
        source=st.sampled_from(["", "doc", "faq"]),
        version=st.sampled_from(["", "1", "2"]),
        nbytes=st.sampled_from([1, 100, 300, 2000]),
    )
    def make(self, token: int, scope: Scope, source: str, version: str, nbytes: int) -> SegmentEntry:
        entry = make(token, nbytes, source_id=source, version=version, scope=scope)
        self.since[entry] = [store.epoch for store in self.stores]
        return entry

    @rule(target=pinned, who=WHO, entry=made, pin=st.booleans())
    def insert(self, who: int, entry: SegmentEntry, pin: bool) -> tuple[int, SegmentEntry] | None:
        used = self.stores[who].insert(entry, pin=pin, since=self.since[entry][who])
        assert (used.key, used.token_ids) == (entry.key, entry.token_ids)
        if used is not entry:
            self.check_found(used)
        self.pins[who, used] += pin
        return (who, used) if pin else None

    @rule(target=pinned, who=WHO, entry=made)
    def acquire(self, who: int, entry: SegmentEntry) -> tuple[int, SegmentEntry] | None:
        found = self.stores[who].acquire(entry.key, entry.token_ids)
        if found is None:
            return None
        assert (found.key, found.token_ids) == (entry.key, entry.token_ids)
        self.check_found(found)
        self.pins[who, found] += 1
        return who, found

    def check_found(self, found: SegmentEntry) -> None:
        """It equals an entry that was offered and is still valid."""
        living = [entry for entry in self.since if entry not in self.dead and entry.key == found.key]
        assert any(
            entry.sources == found.sources and entry.payload.data == found.payload.data  # type: ignore[attr-defined]
            for entry in living
        )

    @rule(held=consumes(pinned))
    def release(self, held: tuple[int, SegmentEntry] | None) -> None:
        if held is not None:
            self.stores[held[0]].release(held[1])
            self.pins[held] -= 1

    @rule(who=WHO, num_bytes=st.integers(0, 300))
    def evict(self, who: int, num_bytes: int) -> None:
        self.stores[who].evict(num_bytes)

    @rule(who=WHO, num_bytes=st.integers(0, 2000))
    def evict_from_disk(self, who: int, num_bytes: int) -> None:
        self.stores[who]._disk.evict(num_bytes)

    @rule(who=WHO, source=st.sampled_from(["", "doc"]), version=st.none() | st.sampled_from(["1", "2"]))
    def invalidate(self, who: int, source: str, version: str | None) -> None:
        self.stores[who].invalidate(source_id=source, version_before=version)
        self.dead |= {
            entry for entry in self.since if entry.source_id == source and (version is None or entry.version < version)
        }

    @rule(who=WHO)
    def invalidate_group(self, who: int) -> None:
        self.stores[who].invalidate(group="g")
        self.dead |= {entry for entry in self.since if "g" in entry.key.scope.groups}

    @rule(who=WHO)
    def flush(self, who: int) -> None:
        self.stores[who].flush()

    @rule(who=WHO)
    def open_again(self, who: int) -> None:
        if any(count for (store, _), count in self.pins.items() if store == who):
            return
        self.stores[who].close()
        self.stores[who] = self.open()
        for entry, epochs in self.since.items():
            epochs[who] = self.stores[who].epoch if entry not in self.dead else -1000

    @invariant()
    def conserves(self) -> None:
        for who, store in enumerate(self.stores):
            store.check_integrity()
            stats = store.stats()
            assert stats.held_bytes <= MEMORY
            assert stats.disk_bytes <= DISK
            assert stats.pinned == sum(1 for (owner, _), count in self.pins.items() if count and owner == who)

    def teardown(self) -> None:
        for (who, entry), count in self.pins.items():
            for _ in range(count):
                self.stores[who].release(entry)
        for store in self.stores:
            store.flush()
            store.check_integrity()
            store.evict(MEMORY)
            stats = store.stats()
            assert (stats.held_bytes, stats.lent_bytes, stats.pinned, stats.damaged) == (0, 0, 0, 0)
            store.close()
        shutil.rmtree(self.root)


TieredMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestTieredMachine = TieredMachine.TestCase
