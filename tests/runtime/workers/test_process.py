"""Real worker processes under an engine: the same answers as without them, whatever happens to them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hypic_agents.completion import Completion
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.runtime.audit.passes import payload_difference
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.request import Request
from hypic_agents.runtime.workers.schedule import Sample
from tests.runtime.models import make_prompt, segment_ids
from tests.runtime.workers.conftest import MODEL, READY_S, Lab, memory_files

POLICY = "hypic:lead_max=0"  # a job's first token is then its document's, which names its fault
ANSWER = SamplingParams(max_tokens=6)
FIRST = (100, 101, 102)


def documents(seed: int, lengths: tuple[int, ...] = (60, 150, 90)) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    return [(first, *segment_ids(rng, n - 1)) for first, n in zip(FIRST, lengths, strict=False)]


def prompt_of(seed: int) -> Prompt:
    return make_prompt(documents(seed), system=segment_ids(random.Random(seed + 1000), 30))


def expected(lab: Lab, prompt: Prompt) -> tuple[int, ...]:
    with lab.engine() as local:
        done = local.generate(prompt, ANSWER, POLICY)
    assert (done.report.builds.local, done.report.builds.workers) == (4, 0)
    return done.token_ids


def answered(lab: Lab, engine: Engine, prompt: Prompt) -> Completion:
    done = engine.generate(prompt, ANSWER, POLICY)
    assert done.token_ids == expected(lab, prompt)
    engine.store.check_integrity()
    assert engine.stats().pinned == 0
    assert engine.stats().inserts == 4
    return done


def until(engine: Engine, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + READY_S
    while not holds():
        engine.step()
        assert time.monotonic() < end, "waited in vain"


def test_workers_build_what_this_process_builds(lab: Lab) -> None:
    prompt = prompt_of(1)
    with lab.engine(lab.pool()) as engine, lab.engine() as local:
        done = answered(lab, engine, prompt)
        builds = done.report.builds
        assert (builds.local, builds.workers, builds.retries, builds.problems) == (0, 4, 0, ())
        assert done.report.cold_tokens > 0
        assert done.report.build_s > 0
        local.generate(prompt, ANSWER, POLICY)
        for build in local.plan(prompt, POLICY).builds:
            key = build.key(engine.fingerprint)
            ours, theirs = (one.store.acquire(key, build.token_ids) for one in (engine, local))
            assert ours is not None
            assert theirs is not None
            assert payload_difference(ours.payload, theirs.payload).error < 1e-5  # type: ignore[arg-type]
            engine.store.release(ours)
            local.store.release(theirs)
        assert engine.generate(prompt, ANSWER, POLICY).report.builds.workers == 0, "the second time, all are there"
    assert all(len(memory_files(pid)) == 0 for pid in lab.group.pids), "workers keep no files"


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("kill", "killed by SIGKILL"),
        ("damage", "the checksum does not match"),
        ("fail", "out of memory"),
        ("burst", "no space left"),
    ],
)
def test_a_worker_that_fails_costs_one_retry(lab: Lab, kind: str, problem: str) -> None:
    lab.set_fault(FIRST[1], kind)
    with lab.engine(lab.pool()) as engine:
        builds = answered(lab, engine, prompt_of(2)).report.builds
    assert builds.retries == 1
    assert any(problem in one for one in builds.problems)
    assert (builds.local, builds.workers) == (0, 4)


def test_a_worker_that_would_wait_for_the_prefix_computes_it_too(lab: Lab) -> None:
    lab.set_fault(4, "hold")  # the prefix's first token
    prompt = prompt_of(13)
    with lab.engine(lab.pool()) as engine:
        request = engine.submit(prompt, ANSWER, POLICY)
        until(engine, lambda: all(map(lab.seen, (4, *FIRST))))
        lab.release()
        until(engine, lambda: request.done)
        assert tuple(request.token_ids) == expected(lab, prompt)
        assert request.report is not None
        assert (request.report.builds.workers, request.report.builds.retries) == (4, 0)
        assert engine.stats().inserts == 4
        assert engine.stats().pinned == 0
        engine.store.check_integrity()


def test_a_worker_builds_on_while_a_payload_is_written_down(lab: Lab) -> None:
    """And if it is killed then, both jobs are done elsewhere."""
    shortest, longest, between = FIRST
    for token, kind in ((longest, "linger"), (between, "hold"), (shortest, "hold")):
        lab.set_fault(token, kind)
    prompt, pool = prompt_of(12), lab.pool()
    with lab.engine(pool) as engine:
        request = engine.submit(prompt, ANSWER, POLICY)
        until(engine, lambda: lab.seen(shortest))
        at_work = [errand.worker for errand in pool._errands.values()]
        worker = max(at_work, key=at_work.count)
        assert sorted(at_work) == sorted([worker, worker, 1 - worker])
        os.kill(lab.group.pids[worker], signal.SIGKILL)
        lab.release()
        until(engine, lambda: request.done)
        assert tuple(request.token_ids) == expected(lab, prompt)
        assert request.report is not None
        assert request.report.builds.retries == 2
        assert engine.stats().pinned == 0
        engine.store.check_integrity()


def test_a_worker_that_hangs_is_replaced(lab: Lab) -> None:
    lab.set_fault(FIRST[1], "stop")
    before = set(lab.group.pids)
    pool = lab.pool(floor_s=3.0)
    pool.worker_cost.add(Sample(100, 0.01))  # else it were their first build
    with lab.engine(pool) as engine:
        builds = answered(lab, engine, prompt_of(3)).report.builds
    assert builds.retries >= 1
    assert any("did not answer within" in one for one in builds.problems)
    lab.pool()
    assert len(set(lab.group.pids) - before) >= 1


def test_without_retries_the_job_is_computed_here(lab: Lab) -> None:
    lab.set_fault(FIRST[0], "fail")
    with lab.engine(lab.pool(retries=0)) as engine:
        builds = answered(lab, engine, prompt_of(4)).report.builds
    assert (builds.local, builds.workers, builds.retries) == (1, 3, 1)


def test_cancelling_reaches_the_job_that_is_computed(lab: Lab) -> None:
    lab.set_fault(FIRST[1], "hold")
    pool = lab.pool()
    with lab.engine(pool) as engine:
        request = engine.submit(prompt_of(5), ANSWER, POLICY)
        until(engine, lambda: lab.seen(FIRST[1]))
        engine.cancel(request)
        assert request.completion is not None
        assert request.completion.finish_reason == "cancelled"
        assert engine.stats().pinned == 0
        assert pool.warm_up(READY_S) == 2
        end = time.monotonic() + READY_S
        while len(lab.group.idle) < 2:  # nobody released the job: it stopped between two layers
            assert pool.poll() == []
            pool.wait(0.05)
            assert time.monotonic() < end
        engine.store.check_integrity()


def test_two_requests_share_a_build_and_one_may_leave(lab: Lab) -> None:
    lab.set_fault(FIRST[1], "hold")
    prompt = prompt_of(6)
    with lab.engine(lab.pool()) as engine:
        first, second, third = (engine.submit(prompt, ANSWER, POLICY) for _ in range(3))
        until(engine, lambda: lab.seen(FIRST[1]))
        engine.cancel(first)
        lab.release()
        until(engine, lambda: second.done and third.done)
        assert second.token_ids == third.token_ids == list(expected(lab, prompt))
        assert second.report is not None
        assert third.report is not None
        assert second.report.builds.workers + third.report.builds.workers <= 4
        assert third.report.cold_tokens == 0
        assert engine.stats().inserts == 4, "each entry was built once"
        assert engine.stats().pinned == 0
        engine.store.check_integrity()


def test_others_go_on_while_one_request_is_built(lab: Lab) -> None:
    prompt = prompt_of(7)
    with lab.engine(lab.pool()) as engine:
        events: list[str] = []
        other = engine.submit(Prompt(segment_ids(random.Random(0), 20)), SamplingParams(max_tokens=12), "exact")
        engine.step()
        assert len(other.token_ids) == 1
        lab.set_fault(FIRST[1], "hold")
        cold = engine.submit(prompt, ANSWER, POLICY)
        until(engine, lambda: _note(events, other, cold))
        assert events == ["other"], "the request that was there decoded to its end"
        late = engine.submit(Prompt(segment_ids(random.Random(1), 20)), SamplingParams(max_tokens=2), "exact")
        until(engine, lambda: late.done)
        assert not cold.done, "and one that came later was answered"
        lab.release()
        until(engine, lambda: cold.done)
        assert tuple(cold.token_ids) == expected(lab, prompt)


def _note(events: list[str], other: Request, cold: Request) -> bool:
    for name, request in (("other", other), ("cold", cold)):
        if request.done and name not in events:
            events.append(name)
    return other.done


def test_an_invalidation_overtakes_a_build(lab: Lab) -> None:
    """Who waited before is served; nobody finds the entry afterwards."""
    lab.set_fault(FIRST[1], "hold")
    prompt = prompt_of(8)
    with lab.engine(lab.pool()) as engine:
        request = engine.submit(prompt, ANSWER, POLICY)
        until(engine, lambda: lab.seen(FIRST[1]))
        engine.invalidate(tenant="default")
        again = engine.submit(prompt, ANSWER, POLICY)
        lab.release()
        until(engine, lambda: request.done and again.done)
        assert request.token_ids == again.token_ids == list(expected(lab, prompt))
        assert again.report is not None
        assert again.report.builds.workers == 4, "nothing older was taken"
        assert engine.stats().pinned == 0
        engine.store.check_integrity()


def test_warming_and_scoring_wait_for_workers(lab: Lab) -> None:
    prompt = prompt_of(9)
    with lab.engine(lab.pool()) as engine, lab.engine() as local:
        assert engine.warm([prompt], POLICY) == 4
        ours, theirs = (one.score([prompt], [(7, 8)], POLICY)[0] for one in (engine, local))
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_nothing_is_left_in_shared_memory(lab: Lab) -> None:
    before = set(Path("/dev/shm").iterdir())
    lab.set_fault(FIRST[0], "kill")
    with lab.engine(lab.pool()) as engine:
        answered(lab, engine, prompt_of(10))
    assert [file for file in set(Path("/dev/shm").iterdir()) - before if "hypic" in file.name] == []


@pytest.mark.slow
def test_an_engine_starts_and_ends_its_own_workers() -> None:
    rng = random.Random(11)
    prompt = make_prompt([segment_ids(rng, 700), segment_ids(rng, 600)], system=segment_ids(rng, 200))
    with Engine.load(MODEL) as local:
        expected = local.generate(prompt, ANSWER)
    with Engine.load(MODEL, EngineConfig(cold_prefill="processes:2")) as engine:
        assert engine.warm_up() == 2
        pids = engine._pool._group.pids  # type: ignore[attr-defined]
        done = engine.generate(prompt, ANSWER)
        assert done.token_ids == expected.token_ids
        assert done.report.builds.workers == 3
        assert engine.metrics().get("hypic_cold_builds_total", policy="hypic", place="worker") == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
