"""LPT against brute force and its bounds; the cost model against costs it should find."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypic_agents.runtime.workers.calibrate import CostGauge, HopGauge
from hypic_agents.runtime.workers.schedule import (
    CostModel,
    Sample,
    deadline_s,
    fit_cost,
    longest_first,
    lower_bound,
    lpt,
    makespan,
    pays_off,
)

costs = st.lists(st.floats(0, 100, allow_nan=False), max_size=40)
workers = st.lists(st.integers(0, 99), min_size=1, max_size=12, unique=True)


@given(costs, workers)
def test_every_job_goes_to_one_idle_worker(jobs: list[float], idle: list[int]) -> None:
    assignment = lpt(jobs, idle)
    assert set(assignment) == set(idle)
    assert sorted(itertools.chain(*assignment.values())) == list(range(len(jobs)))
    for taken in assignment.values():
        assert [jobs[i] for i in taken] == sorted((jobs[i] for i in taken), reverse=True)


@given(costs, workers)
def test_the_makespan_lies_between_its_bounds(jobs: list[float], idle: list[int]) -> None:
    m = len(idle)
    found, bound = makespan(jobs, lpt(jobs, idle)), lower_bound(jobs, m)
    assert bound <= found * (1 + 1e-9) + 1e-9
    # Any list schedule: the last job begins before all workers are done, so by the mean of the others.
    assert found <= sum(jobs) / m + (1 - 1 / m) * max(jobs, default=0.0) + 1e-6


@settings(max_examples=60)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=7), st.integers(1, 3))
def test_lpt_is_within_four_thirds_of_the_best(jobs: list[int], m: int) -> None:
    best = min(
        makespan(jobs, {w: [i for i, to in enumerate(choice) if to == w] for w in range(m)})
        for choice in itertools.product(range(m), repeat=len(jobs))
    )
    assert lower_bound(jobs, m) <= best
    assert makespan(jobs, lpt(jobs, range(m))) <= (4 / 3 - 1 / (3 * m)) * best + 1e-9


def test_uneven_jobs_are_spread() -> None:
    assert lpt([1, 7, 3, 4], [5, 8]) == {5: (1, 0), 8: (3, 2)}
    assert longest_first([2, 9, 2]) == [1, 0, 2]
    assert lower_bound([], 3) == 0
    assert lower_bound([4, 4, 4], 2) == 8


@given(st.floats(1e-6, 1e-2), st.floats(0, 1e-6), st.integers(0, 5))
def test_exact_costs_are_found(linear: float, quadratic: float, seed: int) -> None:
    true = CostModel(linear, quadratic)
    rng = random.Random(seed)
    samples = [
        Sample(n, true.seconds(n, context), context)
        for n, context in ((rng.randrange(8, 4000), rng.choice((0, 500))) for _ in range(40))
    ]
    found = fit_cost(samples, CostModel())
    for n in (100, 600, 3000):
        assert found.seconds(n) == pytest.approx(true.seconds(n), rel=0.15)


def test_outliers_do_not_pull_the_fit() -> None:
    true = CostModel(2e-4, 1e-8)
    rng = random.Random(1)
    lengths = [rng.randrange(100, 2000) for _ in range(60)]
    samples = [
        Sample(n, true.seconds(n) * (20 if i % 10 == 0 else rng.uniform(0.95, 1.05))) for i, n in enumerate(lengths)
    ]
    assert fit_cost(samples, CostModel()).seconds(1000) == pytest.approx(true.seconds(1000), rel=0.1)


def test_few_samples_scale_the_prior_and_never_turn_negative() -> None:
    prior = CostModel(1e-4, 1e-8)
    assert fit_cost([], prior) == prior
    assert fit_cost([Sample(0, 1.0), Sample(5, 0.0)], prior) == prior
    slow = fit_cost([Sample(600, 10 * prior.seconds(600))], prior)
    assert slow.seconds(600) == pytest.approx(10 * prior.seconds(600), rel=0.05)
    assert slow.seconds(2400) == pytest.approx(10 * prior.seconds(2400), rel=0.2)
    falling = fit_cost([Sample(100, 1.0), Sample(1000, 1.1), Sample(4000, 1.2)], prior)
    assert falling.linear_s >= 0
    assert falling.quadratic_s >= 0


def test_a_prefix_costs_attention_only() -> None:
    model = CostModel(1e-4, 1e-8)
    assert model.seconds(100, 1000) - model.seconds(100) == pytest.approx(2 * 1e-8 * 100 * 1000)


def test_gauges_follow_the_latest() -> None:
    gauge = CostGauge()
    before = gauge.model.seconds(500)
    for _ in range(80):
        gauge.add(Sample(500, before * 5))
    assert len(gauge) == 64
    assert gauge.model.seconds(500) == pytest.approx(before * 5, rel=0.05)
    hop = HopGauge(0.005)
    for seconds in (0.5, 0.004, *[0.5] * 10):
        hop.add(seconds)
    assert hop.seconds == 0.004
    for _ in range(16):
        hop.add(0.5)
    assert hop.seconds == 0.5
    hop.add(-1.0)
    assert hop.seconds == 0.0


def test_jobs_that_do_not_pay_are_sent_now_and_then() -> None:
    hop = HopGauge(0.005)
    for _ in range(16):
        hop.add(0.5)
    assert sum(hop.pays(0.1) for _ in range(160)) == 10
    assert not any(hop.pays(0.004) for _ in range(160)), "that never paid"
    assert hop.pays(0.6)
    hop.add(0.002)
    assert all(hop.pays(0.1) for _ in range(20))


def test_what_pays_and_when_a_worker_is_late() -> None:
    assert pays_off(0.1, 0.005)
    assert not pays_off(0.005, 0.005)
    assert deadline_s(2.0, factor=10, floor_s=5) == 20
    assert deadline_s(0.1, factor=10, floor_s=5) == 5
    assert deadline_s(0.1, factor=10, floor_s=5, late=2) == 20
    assert deadline_s(0.1, factor=10, floor_s=5, late=1, is_first=True) == 60
