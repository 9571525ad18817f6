"""Assembly that begins while the last entries are still being built: leading spans first, the rest from their state.

A row continues from a state exactly as it would have run on, so the only difference is where a pass ends. It is done on
idle capacity only: where a worker has nothing to do, the time costs nobody anything.
"""

from __future__ import annotations

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


def leading_spans(plan: Plan, held: Collection[SegmentKey], fingerprint: str) -> int:
    """How many of the plan's spans can be assembled, up to a live one, without an entry that is not held."""
    count = 0
    for i, span in enumerate(plan.spans):
        if isinstance(span, LiveSpan):
            count = i + 1
        elif span.build.key(fingerprint) not in held:
            return count
    return count


class Pipeline:
    """States of requests behind the spans that were assembled so far."""

    def __init__(self, model: HybridModel, fingerprint: str, checkpoints: PrefixCheckpoints, cold: ColdEntries) -> None:
        self._model = model
        self._fingerprint = fingerprint
        self._checkpoints = checkpoints
        self._cold = cold
        self._states: dict[int, RowState] = {}

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
        ticket = self._cold.waiting(request)
        if ticket is None or request.plan.policy.prefix:
            return False
        count = leading_spans(request.plan, ticket.held, self._fingerprint)
        known = self._states.get(request.id)
        done = self._checkpoints.begin(request).start if known is None else known.length
        if not count or request.plan.spans[count - 1].end <= done or count < 2:
            return False
        plan = replace(request.plan, spans=request.plan.spans[:count])
        row = assembly_row(plan, request.prompt.token_ids, ticket.held, self._fingerprint, past=self.past(request))
        self._states[request.id] = self._model.row_states(self._model.forward([replace(row, logits_from=0)]))[0]
        return True
