"""Cold prefill: the entries that a plan needs and the store lacks, each built from its own tokens, packed together.

Prefixes come first, because conditioned segments are built behind them. Equal builds of concurrent requests are made
once. Entries are published whole or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from hypic_agents.runtime.batch import LiveRun, ReusedRun, Row
from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.models.payloads import built_payloads
from hypic_agents.runtime.plan import Build
from hypic_agents.runtime.state import SegmentPayload


class Builder:
    """Finds or makes entries; every entry it hands out is pinned and wants one ``release``."""

    def __init__(self, model: HybridModel, store: SegmentStore, fingerprint: str, max_pass_tokens: int) -> None:
        self._model = model
        self._store = store
        self._fingerprint = fingerprint
        self._max_pass_tokens = max_pass_tokens

    def key(self, build: Build) -> SegmentKey:
        return build.key(self._fingerprint)

    def acquire(self, builds: Sequence[Build]) -> tuple[dict[SegmentKey, SegmentEntry], set[SegmentKey]]:
        """Pinned entries of all builds, and which of them were made now (cold)."""
        held: dict[SegmentKey, SegmentEntry] = {}
        missing: dict[SegmentKey, Build] = {}
        try:
            for build in builds:
                key = self.key(build)
                if key in held or key in missing:
                    continue
                entry = self._store.acquire(key, build.token_ids)
                if entry is None:
                    missing[key] = build
                else:
                    held[key] = entry
            epoch = self._store.epoch
            prefixes = {k: b for k, b in missing.items() if b.is_prefix}
            self._make(prefixes, held, epoch)
            self._make({k: b for k, b in missing.items() if not b.is_prefix}, held, epoch)
        except BaseException:
            self.release(held)
            raise
        return held, set(missing)

    def release(self, held: dict[SegmentKey, SegmentEntry]) -> None:
        for entry in held.values():
            self._store.release(entry)

    def _make(self, missing: dict[SegmentKey, Build], held: dict[SegmentKey, SegmentEntry], epoch: int) -> None:
        todo = list(missing.items())
        while todo:
            # Longest first, so that rows of one pass have like lengths and the chain has few empty steps.
            todo.sort(key=lambda item: -len(item[1].token_ids))
            count, tokens = 0, 0
            while count < len(todo) and (count == 0 or tokens < self._max_pass_tokens):
                tokens += len(todo[count][1].token_ids)
                count += 1
            group, todo = todo[:count], todo[count:]
            started = time.perf_counter()
            rows = [self._row(build, held) for _, build in group]
            payloads = built_payloads(self._model.forward(rows).batch)
            seconds = time.perf_counter() - started
            for (key, build), payload in zip(group, payloads, strict=True):
                entry = SegmentEntry(
                    key=key,
                    token_ids=build.token_ids,
                    payload=payload,
                    source_id=build.source_id,
                    version=build.version,
                    depends_on=build.depends_on,
                    build_s=seconds * len(build.token_ids) / tokens,
                )
                held[key] = self._store.insert(entry, pin=True, since=epoch)

    def _row(self, build: Build, held: dict[SegmentKey, SegmentEntry]) -> Row:
        if build.is_prefix:
            run = LiveRun(0, build.token_ids)
            return Row((run,), logits_from=0, keep=len(build.token_ids), checkpoint=True)
        elements: list[LiveRun | ReusedRun] = []
        at = 0
        if build.prefix_ids:
            payload = self._prefix_payload(build, held)
            at = payload.length
            elements.append(ReusedRun(0, at, payload, "last"))
        if build.map_from:
            elements.append(LiveRun(at, build.token_ids[: build.map_from]))
        rest = build.token_ids[build.map_from :]
        elements.append(LiveRun(at + build.map_from, rest, begin_transition=True))
        return Row(tuple(elements), logits_from=0, keep=build.num_reused)

    def _prefix_payload(self, build: Build, held: dict[SegmentKey, SegmentEntry]) -> SegmentPayload:
        for entry in held.values():
            payload = entry.payload
            assert isinstance(payload, SegmentPayload)
            if payload.is_checkpoint and entry.token_ids == build.prefix_ids:
                return payload  # of whatever scope: equal tokens give equal states, and it is held by this call
        raise LookupError("a conditioned build without its prefix")
