"""Audits in the engine: when they run, what they keep, and that they never get in a request's way."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from hypic_agents.completion import Completion
from hypic_agents.core import Grammar, Prompt, SamplingParams
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.audit.served import MOST_TOKENS, compare
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from tests.runtime.audit.prompts import mixed_prompt
from tests.runtime.audit.test_served import chosen_from
from tests.runtime.models import engine, make_prompt, segment_ids

SHORT = SamplingParams(max_tokens=4)
# Random weights change answers under reuse: nothing falls back in these tests.
LENIENT: dict[str, Any] = {
    "audit_share": 1.0,
    "audit_in_background": False,
    "audit_budget_points": 99.9,
    "audit_max_kl": 1e9,
}


def audited(**config: Any) -> Engine:
    return engine(**(LENIENT | config))


def count(one: Engine, name: str) -> float:
    return one.metrics().total(f"hypic_audit{name}")


def test_nothing_is_kept_or_audited_by_default() -> None:
    one = engine()
    done = one.generate(mixed_prompt(1), SHORT)
    assert not done.report.audited
    assert one.run_audits() == 0
    assert not one._auditor._serving
    assert count(one, "s_total") == 0
    assert one.metrics().get("hypic_requests_total", policy="hypic", finish_reason="length") == 1


def test_the_answer_does_not_depend_on_being_audited() -> None:
    plain, one = engine(), audited()
    for seed in range(3):
        expected, got = (x.generate(mixed_prompt(seed), SHORT) for x in (plain, one))
        assert got.token_ids == expected.token_ids
        assert got.report.audited
        assert replace(got.report, audited=False, ttft_s=0.0, build_s=0.0) == replace(
            expected.report, ttft_s=0.0, build_s=0.0
        )
        one.run_audits()


def test_an_audit_measures_what_was_served() -> None:
    one = audited(policy="zero_state")
    prompt = mixed_prompt(3)
    answer = list(one.generate(prompt, SHORT).token_ids)
    assert one.run_audits() == 1
    reuse, truth = (one.score([prompt], [answer], policy)[0] for policy in ("zero_state", "exact"))
    expected = compare(chosen_from(answer, reuse), truth, 0.01)
    metrics = one.metrics()
    assert expected.kl > 1e-4
    assert metrics.get("hypic_audit_kl_nats_total", policy="zero_state") == pytest.approx(4 * expected.kl, rel=0.02)
    assert metrics.get("hypic_audit_tokens_total", policy="zero_state", agreed="true") == expected.agreed
    assert metrics.get("hypic_audit_tokens_total", policy="zero_state", agreed="false") == 4 - expected.agreed


def test_what_a_grammar_forced_is_not_judged() -> None:
    one = audited(policy="zero_state")
    grammar = Grammar("regex", "([ab] and then it goes on, ){30}")
    request = one.submit(mixed_prompt(3), SamplingParams(max_tokens=200, grammar=grammar))
    while not request.token_ids:
        one.step()
    served = one._auditor._serving[request]
    while not request.done:
        one.step()
    assert len(served.token_ids) <= MOST_TOKENS < len(request.token_ids)
    assert served.token_ids == request.token_ids[: len(served.token_ids)]
    assert 0 < len(served.judged) < len(served.token_ids) / 2
    assert one.run_audits() == 1
    assert count(one, "_tokens_total") == len(served.judged)
    assert count(one, "_failures_total") == 0


def test_exact_requests_need_no_audit() -> None:
    one = audited()
    assert not one.generate(mixed_prompt(1), SHORT, "exact").report.audited
    assert not one.generate(Prompt((5, 6, 7)), SHORT).report.audited
    assert one._auditor.pending == 0


def test_audits_wait_until_the_engine_is_idle() -> None:
    one = audited()
    one.generate(mixed_prompt(1), SHORT)
    request = one.submit(mixed_prompt(2), SHORT)
    assert one.run_audits() == 0
    while not request.done:
        one.step()
        assert count(one, "_seconds_total") == 0
    one.step()
    assert count(one, "_seconds_total") > 0


def test_a_request_goes_before_the_rest_of_a_started_audit() -> None:
    one = audited()
    rng = random.Random(1)
    prompt = make_prompt([segment_ids(rng, 1200) for _ in range(2)], system=segment_ids(rng, 20))
    one.generate(prompt, SHORT)
    one.step()  # the first slice of the full recompute
    assert one._auditor.pending == 1
    spent = count(one, "_seconds_total")
    assert one.generate(mixed_prompt(1), SHORT).finish_reason == "length"
    assert count(one, "_seconds_total") == spent
    assert one.run_audits() == 2
    assert count(one, "s_total") == 2
    assert one.stats().pinned == 0


def test_idle_steps_work_off_what_is_pending() -> None:
    one = audited()
    for seed in range(3):
        one.generate(mixed_prompt(seed), SHORT)
    steps = 0
    while one._auditor.pending:
        assert one.step() == []
        steps += 1
    assert count(one, "s_total") == 3
    assert steps >= 6
    assert one.run_audits() == 0


def test_run_audits_stops_at_its_limit() -> None:
    one = audited()
    for seed in range(3):
        one.generate(mixed_prompt(seed), SHORT)
    assert one.run_audits(most=2) == 2
    assert one.metrics().get("hypic_audit_pending") == 1
    assert one.run_audits(most=0) == 0


def test_the_queue_is_bounded_and_loses_its_oldest() -> None:
    one = audited(audit_queue=2)
    for seed in range(5):
        one.generate(mixed_prompt(seed), SHORT)
    assert one._auditor.pending == 2
    assert [job.prompt for job in one._auditor._queue] == [mixed_prompt(3), mixed_prompt(4)]
    assert one.metrics().get("hypic_audit_dropped_total", reason="queue full") == 3


def test_cancelled_and_failed_requests_leave_nothing_behind() -> None:
    one = audited()
    waiting, running = one.submit(mixed_prompt(1), SHORT), one.submit(mixed_prompt(2), SHORT)
    one.cancel(waiting)
    one.step()
    one.cancel(running)
    stream = one.stream(mixed_prompt(3), SamplingParams(max_tokens=50))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert not one._auditor._serving
    assert one._auditor.pending == 0


def test_an_audit_that_fails_is_counted_and_harms_nobody() -> None:
    one = audited()
    one.generate(mixed_prompt(1), SHORT)
    one.generate(mixed_prompt(2), SHORT)
    one._auditor._queue[0].served.top_ids.clear()
    assert one.run_audits() == 2
    assert count(one, "_failures_total") == 1
    assert count(one, "s_total") == 1
    assert one.generate(mixed_prompt(3), SHORT).report.audited


def test_close_and_invalidation_give_audits_up() -> None:
    one = audited()
    for source in ("a", "b", "c"):
        prompt = mixed_prompt(1)
        spans = tuple(replace(s, segment=replace(s.segment, source_id=source)) for s in prompt.spans)
        one.generate(replace(prompt, spans=spans), SHORT)
    one.step()
    one.invalidate(source_id="a")  # half done
    one.invalidate(source_id="c")
    assert one._auditor.pending == 1
    assert one.metrics().get("hypic_audit_dropped_total", reason="invalidated") == 2
    one.close()
    assert one._auditor.pending == 0
    assert not one.step()
    assert one.stats().pinned == 0
    one.store.check_integrity()


def test_the_share_decides_how_many() -> None:
    counts = [sum(r.audited for r in reports(share, seed)) for share, seed in ((0.5, 0), (0.5, 0), (0.5, 1))]
    assert counts[0] == counts[1]
    assert all(1 <= c <= 13 for c in counts)
    assert [r.audited for r in reports(0.5, 0)] != [r.audited for r in reports(0.5, 1)]


def reports(share: float, seed: int) -> list[Any]:
    one = audited(audit_share=share, audit_seed=seed)
    return [one.generate(mixed_prompt(1), SamplingParams(max_tokens=1)).report for _ in range(14)]


def test_threads_and_the_background_thread_share_the_engine() -> None:
    one = audited(audit_in_background=True, max_batch=3)
    expected = {seed: engine().generate(mixed_prompt(seed), SHORT).token_ids for seed in range(6)}
    got: dict[int, Completion] = {}

    def ask(seed: int) -> None:
        got[seed] = one.generate(mixed_prompt(seed), SHORT)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {seed: done.token_ids for seed, done in got.items()} == expected
    _wait(lambda: one._audits._thread is None)
    assert count(one, "s_total") == 6
    assert one.stats().pinned == 0
    one.generate(mixed_prompt(1), SHORT)  # the thread comes back
    _wait(lambda: count(one, "s_total") == 7)


def test_close_ends_the_background_thread() -> None:
    one = audited(audit_in_background=True)
    with one._lock:  # it cannot start on its audit before the engine is closed
        one.generate(mixed_prompt(1), SHORT)
        thread = one._audits._thread
        one.close()
    assert thread is not None
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert count(one, "s_total") == 0


def _wait(done: Any) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_metrics_show_requests_store_and_audits_to_a_scraper() -> None:
    one = audited()
    one.generate(mixed_prompt(1), SHORT)
    one.run_audits()
    lines = one.metrics_text().splitlines()
    assert 'hypic_requests_total{policy="hypic",finish_reason="length"} 1' in lines
    assert 'hypic_audits_total{policy="hypic",result="kept"} 1' in lines
    assert f"hypic_store_entries {one.stats().entries}" in lines
    assert "# TYPE hypic_audit_pending gauge" in lines


@pytest.mark.parametrize(
    "bad",
    [
        {"audit_share": 1.5},
        {"audit_share": -0.1},
        {"audit_share": float("nan")},
        {"audit_budget_points": 0},
        {"audit_budget_points": 100},
        {"audit_max_kl": 0.0},
        {"audit_queue": 0},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    (name, value), *_ = bad.items()
    with pytest.raises(InvalidInput, match=f"{name}={value}"):
        EngineConfig(**bad)
