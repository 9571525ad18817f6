"""What the audits found so far, and which kinds fell back because of it. No torch."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Literal

from hypic_agents.runtime.audit.evidence import Evidence
from hypic_agents.runtime.audit.fallback import WHOLE_POLICY, Reasons
from hypic_agents.runtime.metrics import Metric, Metrics
from hypic_agents.runtime.policy import ReusePolicy

LOG = logging.getLogger("hypic_agents.audit")

LEDGER_METRICS: dict[str, Metric] = {
    "hypic_audit_kind_total": Metric(
        "counter",
        "Audited answers that reused segments of a kind, by whether that kind was found to have changed them.",
        ("policy", "kind", "result"),
    ),
    "hypic_audit_pressure": Metric(
        "gauge", "How near a fallback is: 0 to 1; the kind * is the whole policy.", ("policy", "kind")
    ),
    "hypic_audit_fallback": Metric(
        "gauge", "1 while segments of a kind are computed live; the kind * is the whole policy.", ("policy", "kind")
    ),
    "hypic_audit_fallbacks_total": Metric("counter", "Fallbacks so far.", ("policy", "kind", "cause")),
}


class Ledger:
    """Sequential tests by policy and kind, and the fallbacks they led to.

    Not locked: one thread at a time writes. ``reasons`` may be read at any time: its values are replaced, not changed.
    """

    def __init__(self, budget: float, metrics: Metrics) -> None:
        self._budget = budget
        self._metrics = metrics
        self._evidence: dict[tuple[ReusePolicy, str], Evidence] = {}
        self._fallen: dict[ReusePolicy, Reasons] = {}
        self._corrupt = False

    def reasons(self, policy: ReusePolicy) -> Reasons:
        """Kinds that fell back under ``policy``, and why."""
        return self._fallen.get(policy, {})

    def record(self, policy: ReusePolicy, kinds: Collection[str], blamed: Collection[str], diverged: bool) -> None:
        """Take one audited answer into account; may lead to a fallback.

        Args:
            policy: What the request ran under.
            kinds: Kinds whose reuse could have changed the answer.
            blamed: Kinds that were found to have changed it.
            diverged: Whether it changed. If no kind alone can be blamed often enough, the whole policy falls back.
        """
        fallen = self.reasons(policy)
        alarmed = []
        for kind in sorted(set(kinds) - set(fallen)):
            result = "changed" if kind in blamed else "kept"
            self._metrics.inc("hypic_audit_kind_total", policy=policy.name, kind=kind, result=result)
            if self._add(policy, kind, kind in blamed).alarm:
                alarmed.append(kind)
        settled = bool(blamed) and set(blamed) <= set(fallen)
        whole = self._add(policy, WHOLE_POLICY, diverged and not settled)
        if not alarmed and whole.alarm:
            alarmed.append(WHOLE_POLICY)
        for kind in alarmed:
            found = self._evidence[policy, kind]
            self.fall_back(
                policy,
                kind,
                f"{found.changed} of the last {found.trials} audited answers changed"
                f"{'' if kind == WHOLE_POLICY else f' through {kind} segments'}, "
                f"above the budget of {100 * self._budget:g} points",
                cause="divergence",
            )

    def fall_back(
        self, policy: ReusePolicy, kind: str, reason: str, *, cause: Literal["divergence", "corruption"]
    ) -> None:
        """Compute segments of ``kind`` live from now on."""
        self._corrupt |= cause == "corruption"
        if kind in self.reasons(policy):
            return
        self._fallen = self._fallen | {policy: {**self.reasons(policy), kind: reason}}
        # What was counted so far was counted with this kind reused: the rest of the policy starts afresh.
        for key in [key for key in self._evidence if key[0] == policy and key[1] in (kind, WHOLE_POLICY)]:
            del self._evidence[key]
            self._metrics.set("hypic_audit_pressure", 0.0, policy=policy.name, kind=key[1])
        self._metrics.set("hypic_audit_fallback", 1.0, policy=policy.name, kind=kind)
        self._metrics.inc("hypic_audit_fallbacks_total", policy=policy.name, kind=kind, cause=cause)
        what = "nothing is reused" if kind == WHOLE_POLICY else f"{kind} segments are computed live"
        LOG.warning("policy %s falls back: %s from now on, until reset_audit(): %s", policy.name, what, reason)

    def reset(self) -> bool:
        """Trust every kind again, and start all tests afresh; returns whether a corruption had been found."""
        corrupt, self._corrupt = self._corrupt, False
        self._fallen = {}
        self._evidence.clear()
        for name in ("hypic_audit_pressure", "hypic_audit_fallback"):
            self._metrics.drop(name)
        return corrupt

    def _add(self, policy: ReusePolicy, kind: str, changed: bool) -> Evidence:
        evidence = self._evidence.setdefault((policy, kind), Evidence(self._budget))
        evidence.add(changed)
        self._metrics.set("hypic_audit_pressure", evidence.pressure, policy=policy.name, kind=kind)
        return evidence
