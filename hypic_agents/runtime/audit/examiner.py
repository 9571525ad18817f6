"""One audit: what was served against full recompute, and who is to blame where they differ.

Where they differ, the request's entries are built anew. A stored one that its rebuild does not confirm is named and
dropped. If there is none, reuse itself changed the answer, and each kind of segment is computed live in turn to see
which one did. Where they agree, one entry is built anew all the same, each in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hypic_agents.core import Prompt
from hypic_agents.runtime.audit.blame import attribute, drop_entry, find_corrupt
from hypic_agents.runtime.audit.fallback import WHOLE_POLICY, approximate_kinds, reused_kinds
from hypic_agents.runtime.audit.ledger import LOG, Ledger
from hypic_agents.runtime.audit.passes import Entries, Slices, rebuild, score
from hypic_agents.runtime.audit.served import Divergence, Served, compare, tie_of
from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.metrics import Metric, Metrics
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.plan import Plan, make_plan
from hypic_agents.runtime.policy import PRESETS, ReusePolicy

EXAMINER_METRICS: dict[str, Metric] = {
    "hypic_audits_total": Metric("counter", "Audited answers.", ("policy", "result")),
    "hypic_audit_tokens_total": Metric(
        "counter", "Audited tokens, by whether full recompute has the same largest logit.", ("policy", "agreed")
    ),
    "hypic_audit_kl_nats_total": Metric(
        "counter", "KL divergence of what was served from full recompute, summed over audited tokens.", ("policy",)
    ),
    "hypic_audit_shadow_total": Metric(
        "counter", "Answers that were recomputed as if nothing had fallen back.", ("policy", "result")
    ),
    "hypic_audit_corrupt_entries_total": Metric(
        "counter", "Stored entries that their rebuild did not confirm.", ("policy", "kind")
    ),
    "hypic_audit_dropped_total": Metric("counter", "Requests chosen but never audited.", ("reason",)),
}
# Every n-th audit of a policy that fell back also tries the policy as it was.
SHADOW_EVERY = 4
_EXACT = PRESETS["exact"]


@dataclass(frozen=True, slots=True)
class Job:
    """One served request."""

    prompt: Prompt
    plan: Plan
    served: Served


class Examiner:
    """Audits one job at a time, and tells the ledger."""

    def __init__(
        self,
        model: HybridModel,
        store: SegmentStore,
        fingerprint: str,
        max_kl: float,
        ledger: Ledger,
        metrics: Metrics,
    ) -> None:
        self._model = model
        self._store = store
        self._fingerprint = fingerprint
        self._max_kl = max_kl
        self._tie = tie_of(model.dtype)
        self._ledger = ledger
        self._metrics = metrics
        self._checked = 0
        self._shadows = 0

    def run(self, job: Job) -> Slices[None]:
        """The whole audit of one job."""
        policy, reused = job.plan.policy, reused_kinds(job.plan)
        fallen = self._ledger.reasons(policy)
        if reused & set(fallen) or (reused and WHOLE_POLICY in fallen):
            self._metrics.inc("hypic_audit_dropped_total", reason="fell back meanwhile")
            return
        shadow = bool(fallen) and self._shadow_is_due()
        if not reused and not shadow:
            return
        truth = yield from self._score(make_plan(job.prompt, _EXACT), job, {})
        if reused:
            found = compare(job.served, truth, self._tie)
            diverged = found.exceeds(self._max_kl)
            self._count(policy, found, diverged)
            blamed = yield from self._blame(job, truth) if diverged else self._spot_check(job.plan)
            self._ledger.record(policy, approximate_kinds(job.plan), blamed, diverged)
        if shadow:
            yield from self._shadow(job, truth)

    def _blame(self, job: Job, truth: Tensor) -> Slices[frozenset[str]]:
        """Kinds that changed the answer."""
        plan = job.plan
        if plan.policy.prefix:
            return frozenset()  # exact by construction: no kind is to blame
        entries = yield from rebuild(self._model, plan.builds, self._fingerprint)
        corrupt = self._drop_corrupt(plan, entries)
        if corrupt:
            return corrupt
        reuse = yield from self._divergence(plan, job, entries, truth)
        if not reuse.exceeds(self._max_kl):
            LOG.warning("an answer changed that fresh entries do not change; those that served it left the store")
            return frozenset()
        return (
            yield from attribute(
                plan, lambda other: self._divergence(other, job, entries, truth), self._max_kl, reuse.kl
            )
        )

    def _spot_check(self, plan: Plan) -> Slices[frozenset[str]]:
        """Rebuild one entry, each in turn, though the answer is right: it may change the next one."""
        self._checked += 1
        if plan.policy.prefix:
            return frozenset()
        one = plan.builds[self._checked % len(plan.builds)]
        prefixes = [build for build in plan.builds if build.is_prefix and build.token_ids == one.prefix_ids]
        yield
        self._drop_corrupt(plan, (yield from rebuild(self._model, [*prefixes, one], self._fingerprint)))
        return frozenset()

    def _drop_corrupt(self, plan: Plan, rebuilt: Entries) -> frozenset[str]:
        """Drop the plan's entries that their rebuild does not confirm; their kinds fall back at once.

        Only a sample was checked, and what spoiled one entry may have spoiled others: none of the kind is trusted.
        """
        policy = plan.policy
        corrupt = find_corrupt(self._store, plan, rebuilt, self._fingerprint)
        for one in corrupt:
            LOG.warning("%s; it is dropped", one)
            self._metrics.inc("hypic_audit_corrupt_entries_total", policy=policy.name, kind=one.kind)
            drop_entry(self._store, one.entry)
        for one in corrupt:
            self._ledger.fall_back(policy, one.kind, str(one), cause="corruption")
        return frozenset(one.kind for one in corrupt)

    def _shadow_is_due(self) -> bool:
        self._shadows += 1
        return self._shadows % SHADOW_EVERY == 1

    def _shadow(self, job: Job, truth: Tensor) -> Slices[None]:
        """What the policy would do had nothing fallen back, with fresh entries: whether a reset would hold."""
        plan = make_plan(job.prompt, job.plan.policy)
        entries = yield from rebuild(self._model, plan.builds, self._fingerprint)
        found = yield from self._divergence(plan, job, entries, truth)
        result = "changed" if found.exceeds(self._max_kl) else "kept"
        self._metrics.inc("hypic_audit_shadow_total", policy=plan.policy.name, result=result)

    def _divergence(self, plan: Plan, job: Job, entries: Entries, truth: Tensor) -> Slices[Divergence]:
        logits = yield from self._score(plan, job, entries)
        return compare(job.served.under(logits), truth, self._tie)

    def _score(self, plan: Plan, job: Job, entries: Entries) -> Slices[Tensor]:
        return score(self._model, plan, job.prompt.token_ids, job.served.token_ids, entries, self._fingerprint)

    def _count(self, policy: ReusePolicy, found: Divergence, diverged: bool) -> None:
        name = policy.name
        self._metrics.inc("hypic_audits_total", policy=name, result="changed" if diverged else "kept")
        self._metrics.inc("hypic_audit_tokens_total", found.agreed, policy=name, agreed="true")
        self._metrics.inc("hypic_audit_tokens_total", found.tokens - found.agreed, policy=name, agreed="false")
        self._metrics.inc("hypic_audit_kl_nats_total", found.kl * found.tokens, policy=name)
