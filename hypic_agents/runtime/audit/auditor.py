"""The shadow audit: recompute a share of the served requests in full when the engine is idle, and act on it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from hypic_agents.core import Prompt
from hypic_agents.runtime.audit.examiner import EXAMINER_METRICS, Examiner, Job
from hypic_agents.runtime.audit.fallback import Reasons, effective_plan
from hypic_agents.runtime.audit.ledger import LEDGER_METRICS, LOG, Ledger
from hypic_agents.runtime.audit.passes import Slices
from hypic_agents.runtime.audit.served import MOST_TOKENS, Sampler, Served
from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.metrics import Metric, Metrics
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.plan import Plan
from hypic_agents.runtime.policy import ReusePolicy
from hypic_agents.runtime.request import Request

AUDIT_METRICS: dict[str, Metric] = {
    **EXAMINER_METRICS,
    **LEDGER_METRICS,
    "hypic_audit_failures_total": Metric("counter", "Audits that raised an error."),
    "hypic_audit_seconds_total": Metric("counter", "Time spent auditing."),
    "hypic_audit_pending": Metric("gauge", "Requests waiting to be audited."),
}


class Auditor:
    """Chooses requests, keeps what was served, audits it in slices, and makes plans under the fallbacks so far.

    Not locked: the engine calls every verb but ``plan`` under its own lock.
    """

    def __init__(
        self, model: HybridModel, store: SegmentStore, fingerprint: str, config: EngineConfig, metrics: Metrics
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._most_pending = config.audit_queue
        self._sampler = Sampler(config.audit_share, config.audit_seed) if config.audit_share else None
        self._ledger = Ledger(config.audit_budget_points / 100, metrics)
        self._examiner = Examiner(model, store, fingerprint, config.audit_max_kl, self._ledger, metrics)
        self._serving: dict[Request, Served] = {}
        self._queue: deque[Job] = deque()
        self._current: tuple[Job, Slices[None]] | None = None
        self.finished = 0

    @property
    def pending(self) -> int:
        """Audits that are waiting or half done."""
        return len(self._queue) + (self._current is not None)

    def plan(self, prompt: Prompt, policy: ReusePolicy) -> Plan:
        """The plan under the policy as it stands after the fallbacks so far."""
        return effective_plan(prompt, policy, self.reasons(policy))

    def reasons(self, policy: ReusePolicy) -> Reasons:
        """What fell back under ``policy``, and why; ``*`` stands for the whole policy."""
        return self._ledger.reasons(policy)

    def record(self, requests: Sequence[Request], tokens: Sequence[int], logits: Sequence[Tensor]) -> None:
        """Keep what is about to be served: each request's next token and the logits ``[vocab]`` it was taken from."""
        if self._sampler is None:
            return
        for request, token, row in zip(requests, tokens, logits, strict=True):
            concerned = request.plan.builds or self.reasons(request.plan.policy)
            if not request.token_ids and concerned and self._sampler.next():
                self._serving[request] = Served(constrained=request.sampling.grammar is not None)
                assert request.report is not None
                request.report = replace(request.report, audited=True)
            served = self._serving.get(request)
            if served is not None and len(request.token_ids) < MOST_TOKENS:
                served.skip(request.token_ids[len(served.token_ids) :])
                served.add(token, row)

    def collect(self, finished: Sequence[Request]) -> None:
        """Queue the audits of finished requests; those that failed or were cancelled are forgotten."""
        for request in finished:
            served = self._serving.pop(request, None)
            if served is None or request.completion is None or request.completion.finish_reason == "cancelled":
                continue
            self._queue.append(Job(request.prompt, request.plan, served))
            if len(self._queue) > self._most_pending:
                # The oldest goes: its entries are the likeliest to have left the store already.
                self._queue.popleft()
                self._metrics.inc("hypic_audit_dropped_total", reason="queue full")
            self._show_pending()

    def step(self) -> bool:
        """One slice of the oldest audit; False if there is none. An audit that fails is given up, and counted."""
        if self._current is None and self._queue:
            job = self._queue.popleft()
            self._current = (job, self._examiner.run(job))
        if self._current is None:
            return False
        started = time.perf_counter()
        try:
            next(self._current[1])
        except StopIteration:
            self._end()
        except Exception:  # noqa: BLE001  an audit must never take the engine down; the log has the traceback
            LOG.exception("an audit failed and is given up")
            self._metrics.inc("hypic_audit_failures_total")
            self._end()
        self._metrics.inc("hypic_audit_seconds_total", time.perf_counter() - started)
        return True

    def forget(self, *, source_id: str | None, tenant: str | None, group: str | None) -> None:
        """Drop audits of requests that held a text which these conditions cover, of whatever version."""

        def covered(one: Job | Request) -> bool:
            return any(
                source_id in (None, span.segment.source_id)
                and tenant in (None, span.segment.scope.tenant)
                and (group is None or group in span.segment.scope.groups)
                for span in one.prompt.spans
            )

        self._serving = {request: served for request, served in self._serving.items() if not covered(request)}
        self._drop(covered, "invalidated")

    def reset(self) -> None:
        """Trust every kind again, and rebuild what was stored before if a corruption had been found."""
        self._drop(lambda _: True, "reset")
        if self._ledger.reset():
            self._store.evict(self._store.stats().held_bytes)

    def close(self) -> None:
        """Give up all that is pending."""
        self._drop(lambda _: True, "closed")
        self._serving.clear()

    def _end(self) -> None:
        self._current = None
        self.finished += 1
        self._show_pending()

    def _drop(self, which: Callable[[Job], bool], reason: str) -> None:
        before = self.pending
        self._queue = deque(job for job in self._queue if not which(job))
        if self._current is not None and which(self._current[0]):
            self._current[1].close()
            self._current = None
        if self.pending < before:
            self._metrics.inc("hypic_audit_dropped_total", before - self.pending, reason=reason)
            self._show_pending()

    def _show_pending(self) -> None:
        self._metrics.set("hypic_audit_pending", self.pending)
