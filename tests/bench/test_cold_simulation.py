"""The simulation of cold prefill: its arithmetic on cases that are known, its laws, and what it would notice."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import simpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypic_agents.bench import cold_simulation
from hypic_agents.bench.cold_samples import sample_builds
from hypic_agents.bench.cold_simulation import Settings
from hypic_agents.bench.cold_simulation_costs import Costs
from hypic_agents.bench.cold_simulation_fleet import Fleet
from hypic_agents.bench.cold_simulation_measured import Measured, predict
from hypic_agents.bench.cold_simulation_picture import draw_simulation
from hypic_agents.bench.cold_simulation_placement import LPT_ALL, LPT_IDLE, POLICIES, ROUND_ROBIN, SINGLE, Placement
from hypic_agents.bench.cold_simulation_report import busy_rows, quantile, speeds
from hypic_agents.bench.cold_simulation_worker import Task, Worker
from hypic_agents.bench.cold_simulation_workload import Arrival, Shape, Traffic, loss_times
from hypic_agents.errors import HypicError, InvalidInput
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.workers.local import LocalPool
from hypic_agents.runtime.workers.schedule import lower_bound

# A token takes a second to build and to answer; nothing else costs anything.
PLAIN = Costs(token_s=1.0, pair_s=0.0, live_s=1.0)
SCATTERING = [LPT_IDLE, LPT_ALL, ROUND_ROBIN]


def quiet(stage: str, done: int, total: int) -> None:
    assert 0 < done <= total


def cold(*lengths: int, at_s: float = 0.0, live: int = 1) -> Arrival:
    return Arrival(at_s, lengths, (1.0,) * len(lengths), live)


def warm(at_s: float, live: int = 1) -> Arrival:
    return Arrival(at_s, (), (), live)


def run(arrivals: list[Arrival], placement: Placement, workers: int, costs: Costs = PLAIN, **settings: Any) -> Any:
    return Fleet(costs, placement, (1.0,) * workers, **settings).run(arrivals)


def test_longest_first_is_as_graham_has_it() -> None:
    lengths = (2, 14, 4, 16, 21, 5, 3)
    (lpt,) = run([cold(*lengths)], LPT_IDLE, 3, apart=True)
    (turns,) = run([cold(*lengths)], ROUND_ROBIN, 3, apart=True)
    (one,) = run([cold(*lengths)], LPT_IDLE, 1, apart=True)
    assert (lpt.built_s, lpt.ttft_s) == (22, 23)
    assert turns.built_s == max(2 + 16 + 3, 14 + 21, 4 + 5)
    assert one.built_s == sum(lengths)


def test_a_home_among_equals_builds_too_and_needs_no_hop() -> None:
    costs = Costs(token_s=1.0, pair_s=0.0, live_s=1.0, dispatch_s=0.5, token_bytes=10.0, link_bytes_s=40.0)
    (one,) = run([cold(4, 4)], LPT_IDLE, 2, costs)
    assert (one.built_s, one.remote) == (0.5 + 4 + 1, 1)
    (single,) = run([cold(4, 4)], SINGLE, 2, costs)
    assert (single.built_s, single.remote) == (8, 0)


def test_what_arrives_at_one_home_comes_one_after_the_other() -> None:
    costs = Costs(token_s=1.0, pair_s=0.0, token_bytes=10.0, link_bytes_s=40.0)
    (one,) = run([cold(4, 4, 4)], LPT_IDLE, 3, costs, apart=True)
    assert one.built_s == 4 + 3 * 1


def test_a_request_goes_before_builds_that_wait_but_interrupts_none() -> None:
    records = run([cold(5, 5), warm(1.0)], SINGLE, 1)
    assert records[1].ttft_s == 5 - 1 + 1
    assert records[0].ttft_s == 5 + 1 + 5 + 1


def test_spare_workers_are_left_to_requests() -> None:
    arrivals = [cold(*[10] * 8), warm(1.0), warm(1.5)]
    eager = run(arrivals, LPT_IDLE, 4)
    sparing = run(arrivals, Placement("spare", idle_only=True, spare=0.25), 4)
    assert eager[1].ttft_s == 9 + 1
    assert sparing[1].ttft_s == 1
    assert sparing[0].built_s > eager[0].built_s


def test_idle_workers_are_shared_out_among_requests() -> None:
    records = run([cold(*[4] * 4, at_s=0.0), cold(*[4] * 4, at_s=0.0)], LPT_IDLE, 4, apart=True)
    # The first takes all four for one job; from then on each request has as many workers as the other, or nearly.
    assert [record.built_s for record in records] == [4, 8]
    later = run([cold(*[4] * 8, at_s=0.0), cold(*[4] * 4, at_s=1.0)], LPT_IDLE, 4, apart=True)
    assert later[1].built_s == 8 + 4 - 1 - 4


def test_a_lost_worker_s_builds_are_made_again_elsewhere() -> None:
    losses = [[], [3.0], []]
    (one,) = run([cold(5, 5)], LPT_IDLE, 3, losses=losses, away_s=100.0, detect_s=0.5)
    lost = [[], [], [3.0]]
    (other,) = run([cold(5, 5)], LPT_IDLE, 3, losses=lost, away_s=100.0, detect_s=0.5)
    assert sorted([one.lost, other.lost]) == [0, 1]
    assert sorted([one.built_s, other.built_s]) == [5, 3 + 0.5 + 5]


def test_a_build_is_made_at_home_when_no_other_worker_is_left() -> None:
    (one,) = run([cold(5, 5)], LPT_IDLE, 2, losses=[[], [3.0]], away_s=100.0, detect_s=0.5)
    assert (one.lost, one.local, one.restarts) == (1, 1, 0)
    assert one.built_s == 10


def test_a_lost_home_takes_the_request_along_and_another_one_begins_again() -> None:
    records = run([cold(5, 5), warm(0.0, live=4)], SINGLE, 2, losses=[[3.0], []], away_s=100.0, detect_s=0.5)
    assert (records[0].restarts, records[1].restarts) == (1, 0)
    assert records[0].built_s == 3.5 + max(0, 4 - 3.5) + 10


def test_all_workers_may_be_away_for_a_while() -> None:
    (one,) = run([warm(0.0, live=4)], SINGLE, 1, losses=[[3.0]], away_s=10.0, detect_s=0.5)
    assert (one.restarts, one.ttft_s) == (1, pytest.approx(13 + 4, abs=0.02))


LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 6), st.sampled_from(SCATTERING), st.booleans())
def test_no_schedule_beats_the_bound_and_no_worker_is_idle_while_jobs_wait(
    lengths: list[int], workers: int, placement: Placement, apart: bool
) -> None:
    (record,) = run([cold(*lengths)], placement, workers, apart=apart)
    bound = lower_bound(lengths, workers)
    assert record.built_s >= bound - 1e-9
    if placement is not ROUND_ROBIN:
        # Graham's bound of any schedule that lets no worker idle while a job waits.
        assert record.built_s <= sum(lengths) / workers + (1 - 1 / workers) * max(lengths) + 1e-9


ARRIVALS = st.lists(
    st.builds(
        lambda gap, lengths, live: (gap, tuple(lengths), live),
        st.floats(0, 20),
        st.lists(st.integers(1, 20), max_size=6),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(ARRIVALS, st.integers(1, 4), st.sampled_from(POLICIES), st.integers(0, 99), st.booleans())
def test_every_request_is_served_whatever_is_lost(
    drawn: list[tuple[float, tuple[int, ...], int]], workers: int, placement: Placement, seed: int, lossy: bool
) -> None:
    at, arrivals = 0.0, []
    for gap, lengths, live in drawn:
        at += gap
        arrivals.append(cold(*lengths, at_s=at, live=live) if lengths else warm(at, live))
    losses = loss_times(workers, at + 50, 60.0 if lossy else 0.0, seed)
    fleet = Fleet(PLAIN, placement, (1.0,) * workers, losses=losses, away_s=5.0, detect_s=0.25)
    records = fleet.run(arrivals)
    work = sum(sum(a.cold) + a.live for a in arrivals)
    assert all(r.ttft_s >= r.built_s + r.arrival.live - 1e-9 for r in records)
    assert all(r.built_s >= max(r.arrival.cold, default=0) - 1e-9 for r in records)
    busy = sum(worker.busy_s for worker in fleet.workers)
    if lossy and any(losses):
        assert busy >= work - 1e-6
    else:
        assert busy == pytest.approx(work)
        assert not any(r.lost or r.local or r.restarts for r in records)


def test_a_cancelled_task_is_not_served() -> None:
    env = simpy.Environment()
    worker = Worker(env)
    tasks = [Task(env, 2.0, urgent=False) for _ in range(3)]
    for task in tasks:
        worker.submit(task)
    tasks[1].cancelled = True
    env.run()
    assert [task.done.value for task in tasks] == [True, False, True]
    assert env.now == worker.busy_s == 4


def test_streams_of_requests_are_what_was_asked_for_and_come_again() -> None:
    traffic = Traffic(Shape(11, spread=0.6), cold_share=0.1, warm_live=200)
    stream = traffic.arrivals(4_000, rate=50.0, seed=3)
    assert stream == traffic.arrivals(4_000, rate=50.0, seed=3)
    assert stream[-1].at_s == pytest.approx(80, rel=0.1)
    assert sum(a.is_cold for a in stream) == pytest.approx(400, rel=0.2)
    assert sorted(a.live for a in stream)[2_000] == pytest.approx(200, rel=0.1)
    slower = traffic.arrivals(4_000, rate=25.0, seed=3)
    assert [a.cold for a in slower] == [a.cold for a in stream]
    lengths = [n for a in stream for n in a.cold]
    assert min(lengths) >= 64 and sorted(lengths)[len(lengths) // 2] == pytest.approx(600, rel=0.1)
    assert Shape(5, 600).lengths(random.Random(1)) == (600,) * 5
    losses = loss_times(50, 1_000.0, 100.0, seed=1)
    assert fmean(map(len, losses)) == pytest.approx(10, rel=0.2)
    assert losses[:3] == loss_times(3, 1_000.0, 100.0, seed=1)


def test_speeds_and_quantiles() -> None:
    assert speeds(4, 0.0, 1) == (1.0,) * 4
    uneven = speeds(64, 0.2, 1)
    assert fmean(uneven) == pytest.approx(1) and min(uneven) < 0.8
    assert [quantile([4, 1, 3, 2], share) for share in (0.0, 0.5, 0.75, 0.76, 1.0)] == [1, 2, 3, 4, 4]


MEASURED = Measured(
    tokens=(600, 600, 300, 1_200),
    seconds=(0.25, 0.26, 0.12, 0.55),
    nbytes=(3_700_000, 3_700_000, 2_800_000, 5_500_000),
    makespan_s={1: 1.26, 2: 0.66},
    answer_s=0.1,
    live=200,
    link_bytes_s=1e9,
)


def test_costs_are_those_of_the_measured_run() -> None:
    costs = MEASURED.costs()
    for tokens, seconds, nbytes in zip(MEASURED.tokens, MEASURED.seconds, MEASURED.nbytes, strict=True):
        assert costs.build_s(tokens) == pytest.approx(seconds, rel=0.06)
        assert costs.move_s(tokens) == pytest.approx(nbytes / 1e9, rel=0.01)
    assert costs.dispatch_s == pytest.approx((1.26 - 1.18 - 0.0055) / 4)
    assert costs.answer_s(200, 4) == pytest.approx(0.1)
    assert 0.005 < MEASURED.noise() < 0.06


def test_the_run_with_one_worker_predicts_itself_and_that_with_two() -> None:
    assert predict(MEASURED, 1)["error"] < 0.03
    found = predict(MEASURED)
    # Longest first: the longest segment at one worker, meanwhile the others at the other.
    assert found["predicted_s"] == pytest.approx(0.25 + 0.26 + 0.12 + 3 * MEASURED.costs().dispatch_s, rel=0.02)
    assert found["error"] == pytest.approx(abs(found["predicted_s"] - 0.66) / 0.66)


def test_a_prediction_takes_what_the_fit_says_of_a_build_and_not_what_it_took() -> None:
    noisy = replace(MEASURED, seconds=(0.25, 0.32, 0.12, 0.55), makespan_s={1: 1.32, 2: 0.75})
    costs = noisy.costs()
    fitted_s = sum(costs.build_s(tokens) for tokens in (600, 600, 300))
    assert fitted_s < 0.98 * (0.25 + 0.32 + 0.12)
    assert predict(noisy)["predicted_s"] == pytest.approx(fitted_s + 3 * costs.dispatch_s, rel=0.01)


def test_a_measured_run_is_read_from_a_benchmark_s_result(tmp_path: Path) -> None:
    jobs = [
        {"tokens": n, "seconds": s, "bytes": b}
        for n, s, b in zip(MEASURED.tokens, MEASURED.seconds, MEASURED.nbytes, strict=True)
    ]
    fields = {
        "jobs": jobs,
        "makespan_s": {"1": 1.26, "2": 0.66},
        "answer_s": 0.1,
        "live_tokens": 200,
        "link_bytes_s": 1e9,
    }
    path = tmp_path / "cold.json"
    for content in (fields, {"rows": [], "simulation": fields}):
        path.write_text(json.dumps(content))
        assert Measured.read(path) == MEASURED


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("no json", "cannot read"),
        ("[]", "lacks or garbles"),
        ("{}", "jobs"),
        ('{"jobs": [], "makespan_s": {"1": 1, "2": 1}}', "no builds"),
        ('{"jobs": [{"tokens": 5, "seconds": 1, "bytes": 1}], "makespan_s": {"1": 1}}', "beside a larger one"),
        ('{"jobs": [{"tokens": 5, "seconds": -1, "bytes": 1}], "makespan_s": {"1": 1, "2": 1}}', "no time"),
        ('{"jobs": [{"tokens": 5}], "makespan_s": {"1": 1, "2": 1}}', "seconds"),
    ],
)
def test_what_is_no_measured_run(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "cold.json"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=says) as raised:
        Measured.read(path)
    assert "bench cold --json" in str(raised.value)
    with pytest.raises(InvalidInput, match="missing"):
        Measured.read(tmp_path / "missing.json")


@pytest.mark.parametrize(
    "bad", [{"workers": ()}, {"workers": (0,)}, {"load": 1.0}, {"network_bytes_s": 0.0}, {"requests": 5}]
)
def test_settings_that_cannot_be_simulated(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        Settings(**bad)
    with pytest.raises(InvalidInput, match="cold_share"):
        Traffic(Shape(1), cold_share=2.0)


def test_builds_of_other_lengths_are_measured() -> None:
    with Engine.load("tiny", EngineConfig(threads=1)) as engine:
        short, long = sample_builds(engine, lengths=(40, 140), repeats=1)
        assert (short["tokens"], long["tokens"]) == (38, 138)
        assert long["bytes"] - short["bytes"] == 1_024 * 100
        assert short["bytes"] > 1_024 * 38 and short["seconds"] > 0
        with pytest.raises(InvalidInput, match="4 tokens is live"):
            sample_builds(engine, lengths=(4,))


def test_builds_of_other_lengths_run_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    compute = LocalPool.compute

    def watched(pool: LocalPool, jobs: Any) -> Any:
        threads.append(torch.get_num_threads())
        return compute(pool, jobs)

    monkeypatch.setattr(LocalPool, "compute", watched)
    before = torch.get_num_threads()
    with Engine.load("tiny", EngineConfig(threads=2)) as engine:
        try:
            sample_builds(engine, lengths=(40,), repeats=1)
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(before)
    assert threads == [1, 1]


def test_samples_tell_apart_what_grows_and_what_does_not() -> None:
    equal = replace(MEASURED, tokens=(600,), seconds=(0.25,), nbytes=(3_700_000,))
    assert equal.costs().fixed_bytes == 0
    costs = replace(equal, samples=((100, 0.04, 2_200_000),)).costs()
    assert costs.fixed_bytes == pytest.approx(1_900_000) and costs.token_bytes == pytest.approx(3_000)


def test_policies_meet_the_same_requests_and_differ() -> None:
    rows = busy_rows(
        MEASURED.costs(),
        Traffic(Shape(11, spread=0.6), 0.05),
        8,
        POLICIES,
        load=0.5,
        requests=1_000,
        spread=0.1,
        loss_every_s=0.0,
        away_s=0.0,
        detect_s=0.0,
        seed=1,
    )
    by_name = {row["policy"]: row for row in rows}
    single, idle = by_name[SINGLE.name], by_name[LPT_IDLE.name]
    assert single["others_p95_vs_single"] == 1.0 and single["remote"] == 0
    assert idle["cold_p50_s"] < single["cold_p50_s"] / 2
    assert idle["cold_p50_s"] < by_name[ROUND_ROBIN.name]["cold_p50_s"]
    assert all(0.4 < row["busy"] < 0.65 for row in rows)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return cold_simulation.run(
        MEASURED, progress=quiet, settings=Settings(workers=(2, 8), requests=300, noise=0.0, draws=2)
    )


def test_the_result_says_where_claims_hold_and_where_not(result: dict[str, Any]) -> None:
    rows = {(row["workers"], row["shape"]): row for row in result["alone"] if row["policy"] == LPT_IDLE.name}
    eleven = rows[8, "11 x 600"]
    assert eleven["best_speedup"] < 6 and eleven["build_speedup"] <= eleven["best_speedup"]
    assert "11 x 600" in result["speedup_missed"] and "64 x 600" in result["speedup_reached"]
    assert rows[8, "64 x 600"]["build_speedup"] >= 6.5
    assert set(result["near_bound"]) | set(result["not_near_bound"]) == {shape for at, shape in rows if at == 8}
    assert all(row["over_bound"] >= 1 for row in result["alone"])
    assert result["prediction_error"] == result["prediction"]["error"] == predict(MEASURED)["error"]
    assert {row["losses"] for row in result["busy"]} == {"none", "every 120 s"}
    json.dumps(result)


def test_a_slower_network_is_slower(result: dict[str, Any]) -> None:
    settings = Settings(workers=(8,), requests=100, noise=0.0, draws=2, network_bytes_s=1e8)
    slow = cold_simulation.run(MEASURED, progress=quiet, settings=settings)
    wanted = (8, "64 x 600", LPT_IDLE.name)
    for_both = [
        next(row["build_s"] for row in one["alone"] if (row["workers"], row["shape"], row["policy"]) == wanted)
        for one in (result, slow)
    ]
    assert for_both[1] > for_both[0]


def test_a_pool_without_8_workers_claims_nothing() -> None:
    found = cold_simulation.run(
        MEASURED, progress=quiet, settings=Settings(workers=(3,), requests=100, noise=0.0, draws=2)
    )
    assert found["speedup_reached"] == found["speedup_missed"] == found["near_bound"] == []


def test_the_picture_is_drawn(result: dict[str, Any], tmp_path: Path) -> None:
    draw_simulation(result, tmp_path / "cold.png", title="Cold prefill")
    assert (tmp_path / "cold.png").stat().st_size > 10_000
    with pytest.raises(InvalidInput, match="cannot save"):
        draw_simulation(result, tmp_path / "missing" / "cold.png", title="Cold prefill")


def test_without_simpy_one_hears_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simpy", None)
    with pytest.raises(HypicError, match="pip install"):
        cold_simulation.run(MEASURED, progress=quiet)
