"""Checkpoints of running requests: which beginning one takes up, and what it leaves behind for the next.

A request leaves two: at the end of the last complete message of its prompt, where the next prompt still agrees whatever
the chat template makes of the answer; and at the end of what it generated, where the next prompt agrees mostly.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.cache.invalidation import Invalidation
from hypic_agents.runtime.cache.prefix import PrefixTree
from hypic_agents.runtime.cache.prefix_base import PrefixStats, Symbol
from hypic_agents.runtime.prefix_beginning import MIN_CHECKPOINT, Beginning, Continuation, find_beginning
from hypic_agents.runtime.prefix_pages import KVPages, StateSnapshot, draw_pages, page_bytes, resume, take_snapshot
from hypic_agents.runtime.request import Request
from hypic_agents.runtime.state import LinearState, RowState

LOG = logging.getLogger("hypic_agents.prefix")


class PrefixCheckpoints:
    """Finds and keeps checkpoints of requests; follows the invalidations of a store. Safe to call from any thread.

    Args:
        store: What composed parts of a beginning come from.
        budget_bytes: What all checkpoints may take together; 0 keeps none.
    """

    def __init__(self, store: SegmentStore, budget_bytes: int) -> None:
        self._store = store
        self._enabled = budget_bytes > 0
        self._tree: PrefixTree[KVPages, StateSnapshot] = PrefixTree(budget_bytes, version_order=store.version_order)
        self._lock = Lock()
        self._followed = store.epoch
        self._failed = 0

    def begin(self, request: Request) -> Continuation:
        """Look up what a request continues from, once."""
        if request.continuation is None:
            request.continuation = self._look_up(request)
        return request.continuation

    def resume(self, request: Request) -> RowState | None:
        """The state that a request continues from, its own to change; None where it begins anew."""
        match = self.begin(request).match
        if match is None:
            return None
        return resume(match.state, match.pages, match.length, len(request.prompt) + request.room)

    def keep_message(self, request: Request, layers: Sequence[LinearState | None], state: RowState) -> None:
        """Keep the checkpoint at ``capture_at``: states there, and the row's keys and values as far as it reaches."""
        one = request.continuation
        if one is not None and one.beginning is not None:
            with self._optional():
                symbols = one.beginning.symbols[: one.capture_at]
                self._keep(one.beginning, symbols, take_snapshot(layers), state, one.since)

    def keep_answer(self, request: Request) -> None:
        """Keep the checkpoint at the end of a finished request, and let go of its state."""
        state, request.state = request.state, None
        one, request.continuation = request.continuation, None
        if state is None or one is None or one.beginning is None or state.length < MIN_CHECKPOINT:
            return
        if state.length <= len(request.prompt):
            return  # a single token, which was not computed: the end of the message before serves as well
        with self._optional():
            # The last token that was chosen was not computed any more.
            symbols = (*one.beginning.symbols, *request.token_ids)[: state.length]
            self._keep(one.beginning, symbols, take_snapshot(state.layers), state, one.since)

    def invalidate(
        self, *, source_id: str | None, version_before: str | None, tenant: str | None, group: str | None
    ) -> int:
        """Invalidate in the store and here before returning; returns what the store says."""
        call = Invalidation(source_id, version_before, tenant, group)
        with self._lock:
            before = self._store.epoch
            count = self._store.invalidate(
                source_id=source_id, version_before=version_before, tenant=tenant, group=group
            )
            self._tree.withdraw(call)
            if self._followed == before and self._store.epoch == before + 1:
                self._followed = before + 1
        return count

    def clear(self) -> None:
        """Forget everything."""
        self._tree.withdraw(None)

    def check_integrity(self) -> None:
        """See :meth:`PrefixTree.check_integrity`."""
        self._tree.check_integrity()

    def stats(self) -> PrefixStats:
        """A consistent snapshot."""
        stats = self._tree.stats()
        with self._lock:
            return replace(stats, rejected=stats.rejected + self._failed)

    def _look_up(self, request: Request) -> Continuation:
        beginning = find_beginning(request.prompt, request.plan, request.eos_token_ids) if self._enabled else None
        if beginning is None:
            return Continuation()
        since = self._follow()
        most = len(request.prompt) - 1  # the last token is computed for its logits
        match = self._tree.find(beginning.domain, beginning.symbols, least=beginning.least, most=most)
        return Continuation(beginning, match, since)

    def _follow(self) -> int:
        """Take note of invalidations that the store heard of elsewhere; returns the tree's epoch.

        What they covered is not known here: an audit or another process made them. So everything goes.
        """
        with self._lock:
            epoch = self._store.epoch
            if epoch != self._followed:
                self._tree.withdraw(None)
                self._followed = epoch
            return self._tree.epoch

    @contextmanager
    def _optional(self) -> Iterator[None]:
        """What fails inside costs a checkpoint and nothing else: the request has its answer without one."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  memory that ran out, most likely
            with self._lock:
                self._failed += 1
            LOG.warning("a prefix checkpoint was not kept: %s: %s", type(error).__name__, error)

    def _keep(
        self,
        beginning: Beginning,
        symbols: tuple[Symbol, ...],
        snapshot: StateSnapshot,
        state: RowState,
        since: int,
    ) -> None:
        self._follow()
        self._tree.insert(
            beginning.domain,
            symbols,
            snapshot,
            lambda start, end: draw_pages(state, start, end),
            token_bytes=page_bytes(state),
            sources=beginning.sources,
            since=since,
        )
