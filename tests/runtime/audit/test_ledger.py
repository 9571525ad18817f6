"""From audited answers to fallbacks."""

from __future__ import annotations

import logging

import pytest

from hypic_agents.runtime.audit.fallback import WHOLE_POLICY
from hypic_agents.runtime.audit.ledger import LEDGER_METRICS, Ledger
from hypic_agents.runtime.metrics import Metrics
from hypic_agents.runtime.policy import PRESETS

HYPIC, OTHER = PRESETS["hypic"], PRESETS["paper_code"]
BOTH = ("document", "tool")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(LEDGER_METRICS)


@pytest.fixture
def ledger(metrics: Metrics) -> Ledger:
    return Ledger(0.05, metrics)


def test_the_kind_that_is_blamed_falls_back_and_no_other(
    ledger: Ledger, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        ledger.record(HYPIC, BOTH, {"tool"}, diverged=True)
    assert not ledger.reasons(HYPIC)
    assert 0.5 < metrics.get("hypic_audit_pressure", policy="hypic", kind="tool") < 1
    with caplog.at_level(logging.WARNING, "hypic_agents.audit"):
        ledger.record(HYPIC, BOTH, {"tool"}, diverged=True)
    assert set(ledger.reasons(HYPIC)) == {"tool"}
    assert ledger.reasons(HYPIC)["tool"].startswith("5 of the last 5 audited answers changed through tool segments")
    assert "policy hypic falls back: tool segments are computed live" in caplog.text
    assert metrics.get("hypic_audit_fallback", policy="hypic", kind="tool") == 1
    assert metrics.total("hypic_audit_fallbacks_total") == 1
    assert not ledger.reasons(OTHER)


def test_what_was_counted_with_a_kind_reused_does_not_hang_on_to_the_rest(ledger: Ledger) -> None:
    for _ in range(5):
        ledger.record(HYPIC, BOTH, {"tool"}, diverged=True)
    for _ in range(4):
        ledger.record(HYPIC, ("document",), (), diverged=True)
    assert set(ledger.reasons(HYPIC)) == {"tool"}


def test_a_rare_kind_is_measured_by_its_own_answers(ledger: Ledger) -> None:
    """One answer in ten holds a tool and changes: for all together that may pass, for tools it is every one."""
    for i in range(60):
        with_tool = i % 10 == 0
        ledger.record(HYPIC, BOTH if with_tool else ("document",), {"tool"} if with_tool else (), diverged=with_tool)
    assert set(ledger.reasons(HYPIC)) == {"tool"}


def test_nobody_to_blame_means_the_whole_policy(ledger: Ledger, metrics: Metrics) -> None:
    for _ in range(5):
        ledger.record(HYPIC, BOTH, (), diverged=True)
    assert set(ledger.reasons(HYPIC)) == {WHOLE_POLICY}
    assert metrics.get("hypic_audit_fallbacks_total", policy="hypic", kind="*", cause="divergence") == 1


def test_blame_that_goes_round_adds_up_to_the_whole_policy(ledger: Ledger) -> None:
    kinds = ("document", "file", "memory", "tool", "trace")
    for i in range(100):
        ledger.record(HYPIC, kinds, {kinds[i // 5 % 5]} if i % 5 == 0 else (), diverged=i % 5 == 0)
    assert set(ledger.reasons(HYPIC)) == {WHOLE_POLICY}


def test_a_corruption_counts_at_once_and_its_answer_only_once(ledger: Ledger, metrics: Metrics) -> None:
    ledger.fall_back(HYPIC, "document", "an entry differs", cause="corruption")
    ledger.fall_back(HYPIC, "document", "another differs", cause="corruption")
    ledger.record(HYPIC, BOTH, {"document"}, diverged=True)
    assert ledger.reasons(HYPIC) == {"document": "an entry differs"}
    assert metrics.get("hypic_audit_pressure", policy="hypic", kind="*") == 0
    assert metrics.total("hypic_audit_fallbacks_total") == 1


def test_reset_trusts_again_and_tells_of_a_corruption(ledger: Ledger, metrics: Metrics) -> None:
    for _ in range(5):
        ledger.record(HYPIC, BOTH, (), diverged=True)
    assert ledger.reset() is False
    assert not ledger.reasons(HYPIC)
    assert "hypic_audit_fallback" not in metrics.as_dict()
    ledger.fall_back(OTHER, "tool", "an entry differs", cause="corruption")
    assert ledger.reset() is True
    assert ledger.reset() is False
