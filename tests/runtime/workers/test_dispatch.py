"""The pool's rules, on workers that obey the test and a clock that stands still."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hypic_agents.runtime.workers.dispatch import Limits, WorkerPool
from hypic_agents.runtime.workers.schedule import Sample
from tests.runtime.workers.scripted import Clock, ScriptedGroup, StubLocal, job


class Case:
    def __init__(self, num_workers: int = 2, *, hop_s: float | None = 0.0, **options: Any) -> None:
        self.group, self.local, self.clock = ScriptedGroup(num_workers, **options), StubLocal(), Clock()
        local: Any = self.local
        limits = Limits(retries=2, deadline_factor=10, deadline_floor_s=5)
        self.pool = WorkerPool(self.group, local, limits, clock=self.clock, hop_s=hop_s)


def test_idle_workers_take_the_longest_jobs_and_then_the_next() -> None:
    case = Case()
    case.pool.submit([job(i, n) for i, n in enumerate((10, 500, 200, 300))])
    assert case.group.sent == [(0, 1), (1, 3)]
    assert case.pool.poll() == []
    case.group.answer(1)
    (built,) = case.pool.poll()
    assert (built.job.id, built.place, built.retries) == (3, "worker", 0)
    assert case.group.sent[2:] == [(1, 2)]
    case.group.answer(0)
    case.group.answer(1)
    assert {one.job.id for one in case.pool.poll()} == {1, 2}
    case.group.answer(0)
    assert [one.job.id for one in case.pool.poll()] == [0]
    assert case.local.computed == []


def test_a_worker_has_its_next_job_before_its_payload_is_taken() -> None:
    case = Case(1)
    case.pool.submit([job(1), job(2)])
    seen: list[tuple[int, int]] = []
    case.group.answer(0)
    (result,) = case.group.poll()
    load = result.load
    assert load is not None

    def watching() -> Any:
        seen.extend(case.group.sent)
        return load()

    object.__setattr__(result, "load", watching)
    case.group._news.append(result)
    assert len(case.pool.poll()) == 1
    assert seen == [(0, 1), (0, 2)]


def test_a_worker_that_finishes_while_a_payload_is_taken_does_not_wait_for_the_others() -> None:
    case = Case(3)
    case.pool.submit([job(i) for i in range(6)])
    seen: list[list[tuple[int, int]]] = []

    def finish(worker: int, then: int | None) -> None:
        """The worker answers; while its payload is taken, ``then`` does."""
        case.group.answer(worker)
        result = case.group._news[-1]
        load = result.load
        assert load is not None

        def loading() -> Any:
            seen.append(case.group.sent[3:])
            if then is not None:
                finish(then, None)
            return load()

        object.__setattr__(result, "load", loading)

    finish(0, then=2)
    finish(1, then=None)
    assert {one.job.id for one in case.pool.poll()} == {0, 1, 2}
    assert seen == [[(0, 3), (1, 4)], [(0, 3), (1, 4), (2, 5)], [(0, 3), (1, 4), (2, 5)]]


def test_a_worker_computes_on_while_its_payload_is_on_its_way() -> None:
    case = Case(1)
    case.pool.submit([job(1, 900), job(2, 800), job(3, 700)])
    case.group.compute(0)
    assert case.pool.poll() == []
    assert case.group.sent == [(0, 1), (0, 2)]
    assert (case.pool.settled, case.pool.warm_up(0.0)) == (True, 1), "with two jobs it is still one worker"
    assert not case.pool.spare
    case.group.answer(0)
    assert [one.job.id for one in case.pool.poll()] == [1]
    assert case.group.sent == [(0, 1), (0, 2)], "it has not computed the second"
    case.group.compute(0)
    case.pool.cancel([2])
    assert case.group.cancelled == [2]
    case.group.answer(0)
    assert case.pool.poll() == []
    assert case.group.sent[-1] == (0, 3)
    case.group.compute(0)
    assert case.pool.poll() == []
    assert not case.pool.spare, "its payload will be there in a moment"
    case.group.answer(0)
    assert len(case.pool.poll()) == 1
    assert case.pool.spare


def test_a_worker_that_is_lost_costs_all_its_jobs_a_retry() -> None:
    case = Case(2)
    case.pool.submit([job(1, 900), job(2, 800)])
    case.pool.submit([job(3, 700)])
    case.group.compute(0)
    case.pool.poll()
    case.group.lose(0)
    case.pool.poll()
    case.group.answer(1)
    case.pool.poll()
    case.group.answer(1)
    built = case.pool.poll()
    case.group.answer(1)
    retries = {one.job.id: one.retries for one in (*built, *case.pool.poll())}
    assert case.group.sent == [(0, 1), (1, 2), (0, 3), (1, 1), (1, 3)]
    assert retries == {1: 1, 3: 1}


def test_a_payload_that_does_not_come_is_late_and_the_job_behind_it_is_no_retry() -> None:
    case = Case(1)
    case.pool.worker_cost.add(Sample(100, 0.01))
    case.pool.submit([job(1), job(2)])
    case.group.compute(0)
    case.clock.now = 3.0
    assert case.pool.poll() == []
    case.clock.now = 5.0
    built = {one.job.id: one for one in case.pool.poll()}
    assert case.group.abandoned == [0]
    assert built[1].problems[0] == "worker 0 did not answer within 5 s"
    assert (built[1].retries, built[2].retries) == (1, 0)


def test_workers_are_shared_out_among_owners() -> None:
    case = Case(2)
    case.pool.submit([job(i, 500, owner=1) for i in range(10)])
    case.pool.submit([job(20, 50, owner=2)])
    case.group.answer(0)
    case.pool.poll()
    assert case.group.sent[-1] == (0, 20), "a small request does not wait for all of a large one"


def test_small_jobs_stay_here() -> None:
    case = Case(2, hop_s=0.02)
    case.pool.submit([job(1, 10), job(2, 5000)])
    assert [one.job.id for one in case.pool.poll()] == [1]
    assert case.group.sent == [(0, 2)]


def test_jobs_are_computed_here_while_no_worker_is_ready() -> None:
    case = Case(2, ready=False)
    case.pool.submit([job(1), job(2)])
    assert [(one.place, one.retries) for one in case.pool.poll()] == [("local", 0)] * 2
    case.group.absent.clear()
    case.pool.submit([job(3)])
    assert case.group.sent == [(0, 3)]


def test_a_lost_worker_costs_one_retry_elsewhere() -> None:
    case = Case(2)
    case.pool.submit([job(1, 900), job(2, 800)])
    case.group.lose(0)
    assert case.pool.poll() == []
    case.group.answer(1)
    assert [one.job.id for one in case.pool.poll()] == [2]
    assert case.group.sent[-1] == (1, 1)
    case.group.answer(1)
    (built,) = case.pool.poll()
    assert (built.place, built.retries, built.problems) == ("worker", 1, ("worker 0 was lost",))


def test_without_any_worker_left_the_job_is_computed_here_and_says_why() -> None:
    case = Case(1)
    case.pool.submit([job(1), job(2)])
    case.group.lose(0)
    built = {one.job.id: one for one in case.pool.poll()}
    assert {one.place for one in built.values()} == {"local"}
    assert built[1].problems == ("worker 0 was lost", "no worker was there: worker 0 was lost")
    assert built[2].problems == ("no worker was there: worker 0 was lost",)
    assert built[2].retries == 0, "it was never begun"


@pytest.mark.parametrize("how", ["fail", "damage"])
def test_a_job_is_not_given_to_the_same_worker_again(how: str) -> None:
    case = Case(2)
    case.pool.submit([job(1)])
    getattr(case.group, how)(0)
    assert case.pool.poll() == []
    assert case.group.sent == [(0, 1), (1, 1)]
    getattr(case.group, how)(1)
    (built,) = case.pool.poll()
    assert (built.place, built.retries) == ("local", 2)
    assert case.group.abandoned == ([0, 1] if how == "damage" else [])


def test_damage_ends_the_worker_and_its_next_job_is_no_retry() -> None:
    case = Case(1)
    case.pool.submit([job(1, 900), job(2, 100)])
    case.group.damage(0)
    built = {one.job.id: one for one in case.pool.poll()}
    assert case.group.sent == [(0, 1), (0, 2)]
    assert case.group.abandoned == [0]
    assert (built[1].place, built[1].retries) == ("local", 1)
    assert (built[2].place, built[2].retries) == ("local", 0)


def test_the_retry_budget_ends_at_home() -> None:
    case = Case(5)
    case.pool.submit([job(1)])
    for worker in (0, 1, 2):
        case.group.fail(worker)
        built = case.pool.poll()
    assert (built[0].place, built[0].retries) == ("local", 3)


def test_a_late_worker_is_ended_and_its_job_goes_on() -> None:
    case = Case(2)
    case.pool.worker_cost.add(Sample(100, 0.01))
    case.pool.submit([job(1)])
    case.clock.now = 4.9
    assert case.pool.poll() == []
    case.clock.now = 5.0
    assert case.pool.poll() == []
    assert case.group.abandoned == [0]
    assert case.group.sent[-1] == (1, 1)
    case.group.answer(1)
    (built,) = case.pool.poll()
    assert built.problems == ("worker 0 did not answer within 5 s",)


def lateness(case: Case, number: int = 1) -> float:
    """Seconds after which the worker that takes the next job is ended."""
    case.pool.submit([job(number)])
    return due_in(case)


def due_in(case: Case) -> float:
    (errand,) = case.pool._errands.values()
    return errand.due_s - case.clock.now


def test_a_first_build_may_take_longer() -> None:
    case = Case(1)
    assert lateness(case) == 30
    case.group.answer(0)
    assert len(case.pool.poll()) == 1
    assert lateness(case, 2) == 5


def test_every_lateness_doubles_the_time_that_a_job_has() -> None:
    case = Case(3)
    found = [lateness(case)]
    for _ in range(2):
        case.clock.now += found[-1]
        case.pool.poll()
        found.append(due_in(case))
    assert found == [30, 60, 120]
    case.group.answer(2)
    (built,) = case.pool.poll()
    assert (built.place, built.retries) == ("worker", 2), "a slow worker finishes in the end"


def test_what_this_process_takes_bounds_what_workers_may() -> None:
    case = Case(1)
    case.pool.worker_cost.add(Sample(100, 0.01))
    for _ in range(9):
        case.pool.local_cost.add(Sample(100, 2.0))
    assert lateness(case) == pytest.approx(20, rel=0.05)


def test_what_is_fetched_says_nothing_of_costs() -> None:
    case = Case(1)
    case.pool.submit([job(1)])
    case.group.answer(0, build_s=0.0)
    assert len(case.pool.poll()) == 1
    assert len(case.pool.worker_cost) == 0


def test_a_busy_engine_does_not_turn_its_workers_off() -> None:
    case = Case(1, hop_s=None)
    busy = 1.0
    sent = 0
    for number in range(400):
        case.pool.submit([job(number, 1000)])  # 0.01 s: more than a hop, less than what this process is busy with
        if case.group.jobs:
            sent += number >= 350
            case.group.answer(0)
            case.clock.now += busy if number < 100 else 0.011
        assert len(case.pool.poll()) == 1
    assert sent == 50, "once it is not busy any more, all are sent"


def test_cancelled_jobs_never_come_out() -> None:
    case = Case(1, hop_s=0.001)
    case.pool.submit([job(1, 500), job(2, 400), job(3, 1)])
    case.pool.cancel([1, 2, 3, 99])
    assert case.group.cancelled == [1]
    case.group.answer(0)
    assert case.pool.poll() == []
    case.pool.submit([job(4, 500)])
    assert case.group.sent == [(0, 1), (0, 4)]


def test_a_worker_that_does_not_let_go_of_a_cancelled_job_is_ended() -> None:
    case = Case(1)
    case.pool.worker_cost.add(Sample(100, 0.01))
    case.pool.submit([job(1)])
    case.pool.cancel([1])
    case.clock.now = 6
    assert case.pool.poll() == []
    assert case.group.abandoned == [0]


def test_warm_up_counts_who_is_ready() -> None:
    case = Case(3)
    case.group.gone.add(2)
    assert case.pool.warm_up(1.0) == 2
    assert case.pool.settled
    case.group.absent.add(1)
    assert case.pool.warm_up(0.0) == 1
    assert not case.pool.settled


def test_close_closes_the_group() -> None:
    case = Case(1)
    case.pool.submit([job(1), job(2)])
    case.pool.close()
    assert case.group.closed


class Pool(RuleBasedStateMachine):
    """Whatever workers do: every job comes out once, or was cancelled; no worker computes two jobs."""

    @initialize(num_workers=st.integers(1, 3))
    def start(self, num_workers: int) -> None:
        self.case = Case(num_workers, hop_s=0.001)
        self.open: set[int] = set()
        self.count = 0

    @rule(lengths=st.lists(st.integers(1, 2000), min_size=1, max_size=4), owner=st.integers(0, 2))
    def submit(self, lengths: list[int], owner: int) -> None:
        jobs = [job(self.count + i, n, owner) for i, n in enumerate(lengths)]
        self.count += len(jobs)
        self.open |= {one.id for one in jobs}
        self.case.pool.submit(jobs)

    @rule()
    def poll(self) -> None:
        for built in self.case.pool.poll():
            assert built.job.id in self.open
            assert (built.payload is None) != (built.error is None)
            self.open.remove(built.job.id)

    @precondition(lambda self: self.case.group.jobs.keys() - self.case.group.coming.keys())
    @rule(which=st.integers(0, 9))
    def computed(self, which: int) -> None:
        group = self.case.group
        busy = sorted(group.jobs.keys() - group.coming.keys())
        group.compute(busy[which % len(busy)])

    @precondition(lambda self: self.case.group.jobs or self.case.group.coming)
    @rule(how=st.sampled_from(["answer", "fail", "damage", "lose"]), which=st.integers(0, 9))
    def news(self, how: str, which: int) -> None:
        busy = sorted(self.case.group.jobs | self.case.group.coming)
        getattr(self.case.group, how)(busy[which % len(busy)])

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        chosen = sorted(self.open)[which % len(self.open)]
        self.case.pool.cancel([chosen])
        self.open.remove(chosen)

    @rule(seconds=st.floats(0.1, 30))
    def time_passes(self, seconds: float) -> None:
        self.case.clock.now += seconds

    @rule()
    def workers_return(self) -> None:
        self.case.group.absent.clear()

    @invariant()
    def nobody_is_forgotten(self) -> None:
        pool = self.case.pool
        at_work = [e.item.job.id for e in pool._errands.values() if e.item is not None]
        arrived = [e.item.job.id for _, e in pool._arrived if e.item is not None]
        known = [*at_work, *arrived, *(i.job.id for i in (*pool._queue, *pool._here))]
        assert sorted(known) == sorted(self.open)

    def teardown(self) -> None:
        if hasattr(self, "case"):
            for _ in range(200):
                self.poll()
                self.case.clock.now += 60  # whoever holds a job is late
                self.case.group.absent.clear()
            assert not self.open


Pool.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None, phases=[Phase.generate])
test_pool = Pool.TestCase
