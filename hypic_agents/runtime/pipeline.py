"""Assembly that begins while the last entries are still being built: leading spans first, the rest from their state.

A row continues from a state exactly as it would have run on, so the only difference is where a pass ends. It is done on
idle capacity only: where a worker has nothing to do, the time costs nobody anything.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace

from hypic_agents.runtime.assemble import assembly_row
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cold import ColdEntries
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.plan import LiveSpan, Plan
from hypic_agents.runtime.prefix_checkpoints import PrefixCheckpoints
from hypic_agents.runtime.request import Request
from hypic_agents.runtime.state import RowState

LOG = logging.getLogger("hypic_agents.pipeline")


def leading_spans(plan: Plan, held: Collection[SegmentKey], fingerprint: str, start: int = 0) -> int:
    """How many of the plan's spans can be assembled, up to a live one, without an entry that is not held.

    Entries of spans among the first ``start`` tokens are not needed: their states are there.
    """
    count = 0
    for i, span in enumerate(plan.spans):
        if isinstance(span, LiveSpan):
            count = i + 1
        elif span.end > start and span.build.key(fingerprint) not in held:
            return count
    return count


class Pipeline:
    """States of requests behind the spans that were assembled so far.

    It only brings work forward: what fails here is left to the request's own pass.
    """

    def __init__(self, model: HybridModel, fingerprint: str, checkpoints: PrefixCheckpoints, cold: ColdEntries) -> None:
        self._model = model
        self._fingerprint = fingerprint
        self._checkpoints = checkpoints
        self._cold = cold
        self._states: dict[int, RowState | None] = {}  # None for a request that is not to be tried again

    def step(self, requests: Iterable[Request]) -> bool:
        """Run one request on over the spans whose entries have come; False if there was none, or no capacity idle."""
        return self._cold.spare and any(self._run_on(request) for request in requests)

    def past(self, request: Request) -> RowState | None:
        """The state that the request's row continues from; None where it begins anew."""
        state = self._states.get(request.id)
        return self._checkpoints.resume(request) if state is None else state

    def forget(self, requests: Iterable[Request]) -> None:
        """Let go of states that are used, or needed no more."""
        for request in requests:
            self._states.pop(request.id, None)

    def _run_on(self, request: Request) -> bool:
        if request.id in self._states and self._states[request.id] is None:
            return False
        try:
            return self._assemble(request)
        except Exception as error:  # noqa: BLE001  the request's own pass fails it, or does better
            LOG.warning("a request was not assembled ahead: %s: %s", type(error).__name__, error)
            self._states[request.id] = None  # a pass that failed may have changed what it continued
            return False

    def _assemble(self, request: Request) -> bool:
        ticket = self._cold.waiting(request)
        if ticket is None or request.plan.policy.prefix:
            return False
        known = self._states.get(request.id)
        start = self._checkpoints.begin(request).start
        done = start if known is None else known.length
        count = leading_spans(request.plan, ticket.held, self._fingerprint, start)
        # The last span is for the request's own pass, whatever else that waits for.
        if not 2 <= count < len(request.plan.spans) or request.plan.spans[count - 1].end <= done:
            return False
        plan = replace(request.plan, spans=request.plan.spans[:count])
        ids, past = request.prompt.token_ids, self.past(request)
        row = assembly_row(plan, ids, ticket.held, self._fingerprint, past=past, room=request.room)
        self._states[request.id] = self._model.row_states(self._model.forward([replace(row, logits_from=0)]))[0]
        return True
