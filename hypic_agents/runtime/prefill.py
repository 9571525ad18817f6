"""Prefill of admitted requests: build what is missing, assemble all of them in one pass, take the first tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from hypic_agents.runtime.assemble import assembly_row, builds_from, leading_hits, missing_checkpoints
from hypic_agents.runtime.build import Builder
from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cold import ColdEntries
from hypic_agents.runtime.models.hybrid import ForwardResult, HybridModel
from hypic_agents.runtime.models.payloads import captured_payloads, captured_states
from hypic_agents.runtime.pipeline import Pipeline
from hypic_agents.runtime.plan import Build, Plan, ReusedSpan
from hypic_agents.runtime.prefix_checkpoints import PrefixCheckpoints
from hypic_agents.runtime.request import Request, make_report, reused_keys
from hypic_agents.runtime.workers.contract import ColdPrefillPool


@dataclass(frozen=True, slots=True)
class _BehindPrefix:
    """A strict-prefix pass: its result, the checkpoints that it took, and how many it made."""

    result: ForwardResult
    used: set[SegmentKey]
    num_made: int


class Prefill:
    """Runs prefill passes on one model and store.

    Attributes:
        cold: The entries that admitted requests wait for, until :meth:`run` takes them.
        pipeline: What was assembled of them before that.
    """

    def __init__(
        self,
        model: HybridModel,
        store: SegmentStore,
        fingerprint: str,
        max_pass_tokens: int,
        checkpoints: PrefixCheckpoints,
        pool: ColdPrefillPool | None = None,
    ) -> None:
        self._model = model
        self._store = store
        self._fingerprint = fingerprint
        self._checkpoints = checkpoints
        self._builder = Builder(model, store, fingerprint, max_pass_tokens, pool)
        self.cold = ColdEntries(self._builder, self.builds)
        self.pipeline = Pipeline(model, fingerprint, checkpoints, self.cold)

    def run(self, requests: Sequence[Request]) -> list[Tensor]:
        """Next-token logits ``[vocab]`` of every request; their states and reports are set."""
        composed = [r for r in requests if not r.plan.policy.prefix]
        logits: dict[int, Tensor] = {}
        if composed:
            logits |= self._composed(composed)
        for request in requests:
            if request.plan.policy.prefix:
                logits[request.id] = self._behind_prefix(request)
        return [logits[r.id] for r in requests]

    def forget(self, requests: Sequence[Request]) -> None:
        """Let go of what finished requests wait for or hold."""
        self.cold.forget(requests)
        self.pipeline.forget(requests)

    def builds(self, request: Request) -> list[Build]:
        """The entries that a request needs behind the checkpoint that it continues from, if there is one."""
        return builds_from(request.plan, self._checkpoints.begin(request).start)

    def score(
        self, plans: Sequence[Plan], prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
    ) -> list[Tensor]:
        """Logits ``[answer tokens, vocab]`` of given answers behind their prompts; the composed ones in one pass."""
        logits: dict[int, Tensor] = {}
        composed: list[int] = []
        for i, (plan, ids, answer) in enumerate(zip(plans, prompts, answers, strict=True)):
            if plan.policy.prefix:
                logits[i] = self._pass_behind_prefix(plan, ids, answer).result.logits
            else:
                composed.append(i)
        if composed:
            logits |= zip(composed, self._score_composed(plans, prompts, answers, composed), strict=True)
        return [logits[i] for i in range(len(plans))]

    def warm_behind_prefix(self, plan: Plan, token_ids: Sequence[int]) -> int:
        """Make the checkpoints that a strict-prefix plan needs and the store lacks; returns how many were made."""
        return self._pass_behind_prefix(plan, token_ids).num_made

    def _score_composed(
        self,
        plans: Sequence[Plan],
        prompts: Sequence[Sequence[int]],
        answers: Sequence[Sequence[int]],
        chosen: Sequence[int],
    ) -> Sequence[Tensor]:
        held, _ = self._builder.acquire([b for i in chosen for b in plans[i].builds])
        try:
            rows = [assembly_row(plans[i], prompts[i], held, self._fingerprint, answer_ids=answers[i]) for i in chosen]
            logits: Sequence[Tensor] = self._model.forward(rows).logits.split([row.logits_from for row in rows])
            return logits
        finally:
            self._builder.release(held)

    def _composed(self, requests: Sequence[Request]) -> dict[int, Tensor]:
        tickets = self.cold.take(requests)
        try:
            begun = [self._checkpoints.begin(request) for request in requests]
            held = {key: entry for ticket in tickets for key, entry in ticket.held.items()}
            rows = [
                assembly_row(
                    request.plan,
                    request.prompt.token_ids,
                    held,
                    self._fingerprint,
                    past=self.pipeline.past(request),
                    capture_at=one.capture_at,
                    room=request.room,
                )
                for request, one in zip(requests, begun, strict=True)
            ]
            result = self._model.forward(rows)
            states = self._model.row_states(result)
            logits = result.logits
            if logits.device.type == "cuda":
                logits = logits.cpu()  # waits for the pass: the time to first token must include it
        finally:
            self.cold.drop(tickets)
        now = time.perf_counter()
        for r, layers in captured_states(result.batch).items():
            self._checkpoints.keep_message(requests[r], layers, states[r])
        for request, state, one, ticket in zip(requests, states, begun, tickets, strict=True):
            used = reused_keys(request.plan, self._fingerprint, one.start)
            # Entries count as cold for the first request that named them and as hits for others that waited for them.
            mine = used & ticket.cold
            request.state = state
            request.continuation = replace(one, match=None)  # its own copy from here on
            report = make_report(
                request.plan,
                request.prompt,
                self._fingerprint,
                used,
                mine,
                now - request.submitted_s,
                ticket.build_s if mine else 0.0,
                one.start,
            )
            request.report = replace(report, builds=ticket.builds)
        self.pipeline.forget(requests)
        return {r.id: logits[i] for i, r in enumerate(requests)}

    def _behind_prefix(self, request: Request) -> Tensor:
        done = self._pass_behind_prefix(request.plan, request.prompt.token_ids)
        request.state = self._model.row_states(done.result)[0]
        logits = done.result.logits[0].cpu()
        ttft_s = time.perf_counter() - request.submitted_s
        request.report = make_report(request.plan, request.prompt, self._fingerprint, done.used, set(), ttft_s, 0.0)
        return logits

    def _pass_behind_prefix(
        self, plan: Plan, token_ids: Sequence[int], answer_ids: Sequence[int] = ()
    ) -> _BehindPrefix:
        """Strict-prefix reuse: the longest run of checkpoints from the beginning, the rest live and checkpointed."""
        held: dict[SegmentKey, SegmentEntry] = {}
        epoch = self._store.epoch
        try:
            for span in plan.spans:
                if not isinstance(span, ReusedSpan):
                    break
                key = self._builder.key(span.build)
                entry = self._store.acquire(key, span.build.token_ids)
                if entry is None:
                    break
                held[key] = entry
            row = assembly_row(plan, token_ids, held, self._fingerprint, answer_ids=answer_ids)
            result = self._model.forward([row])
            missing = missing_checkpoints(plan, held, self._fingerprint)
            for span, payload in zip(missing, captured_payloads(result.batch), strict=True):
                build = span.build
                self._store.insert(
                    SegmentEntry(
                        self._builder.key(build),
                        build.token_ids,
                        payload,
                        build.source_id,
                        build.version,
                        build.depends_on,
                    ),
                    since=epoch,
                )
        finally:
            self._builder.release(held)
        return _BehindPrefix(result, leading_hits(plan, held, self._fingerprint), len(missing))
