"""What a simulation shows: speedups of prompts alone, and latencies of a busy fleet, as flat rows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from hypic_agents.bench.cold_simulation_costs import Costs
from hypic_agents.bench.cold_simulation_fleet import Fleet
from hypic_agents.bench.cold_simulation_placement import LPT_IDLE, SINGLE, Placement
from hypic_agents.bench.cold_simulation_scatter import Record
from hypic_agents.bench.cold_simulation_workload import Arrival, Shape, Traffic, alone, loss_times
from hypic_agents.runtime.workers.schedule import lower_bound

_SETTLING = 0.1
# Fewer draws of prompts whose own segments average out.
_SEGMENTS_DRAWN = 640
# Live tokens of a prompt: its question, and the seams and the separator of each segment.
_QUESTION, _SEAMS = 64, 11


def speeds(workers: int, spread: float, seed: int) -> tuple[float, ...]:
    """Log-normal speeds with a mean of 1; all 1 without spread."""
    rng = random.Random(f"speeds-{seed}")
    drawn = [math.exp(rng.gauss(0, spread)) for _ in range(workers)]
    return tuple(speed / fmean(drawn) for speed in drawn)


def alone_rows(
    costs: Costs,
    shape: Shape,
    workers: int,
    placements: Sequence[Placement],
    *,
    noise: float,
    draws: int,
    seed: int,
) -> list[dict[str, Any]]:
    """One cold prompt in front of an empty pool of equal workers, on average over draws of its lengths and noise.

    ``build_speedup`` compares the time until the last payload is there with that of a pool of one worker;
    ``ttft_speedup`` includes the pass that answers, which no worker helps with. ``best_speedup`` is what the bound
    allows: no schedule beats it, even one that knows how long each build will take. It counts what a build takes its
    worker, the hand-over included, as everywhere in the simulation; ``over_bare_bound`` leaves that out of the bound.
    """
    draws = max(2, min(draws, _SEGMENTS_DRAWN // shape.segments)) if shape.spread or noise else 1
    live = _QUESTION + _SEAMS * shape.segments
    prompts = [alone(shape, live=live, noise=noise, seed=seed + draw) for draw in range(draws)]
    ones = [Fleet(costs, LPT_IDLE, (1.0,), apart=True).run([prompt])[0] for prompt in prompts]
    bound_s, bare_s = (
        fmean(lower_bound(_times(costs, prompt, hop_s), workers) for prompt in prompts)
        for hop_s in (costs.dispatch_s, 0.0)
    )
    rows = []
    for placement in placements:
        found = [Fleet(costs, placement, (1.0,) * workers, apart=True).run([prompt])[0] for prompt in prompts]
        build_s = fmean(record.built_s for record in found)
        one_s = fmean(record.built_s for record in ones)
        rows.append(
            {
                "workers": workers,
                "shape": shape.name,
                "policy": placement.name,
                "build_s": build_s,
                "bound_s": bound_s,
                "over_bound": build_s / bound_s,
                "over_bare_bound": build_s / bare_s,
                "best_speedup": one_s / bound_s,
                "build_speedup": one_s / build_s,
                "ttft_speedup": fmean(record.ttft_s for record in ones) / fmean(record.ttft_s for record in found),
            }
        )
    return rows


def _times(costs: Costs, prompt: Arrival, hop_s: float) -> list[float]:
    """Seconds that each build of a prompt really takes its worker."""
    return [hop_s + costs.build_s(n) * factor for n, factor in zip(prompt.cold, prompt.noise, strict=True)]


def mean_work_s(costs: Costs, arrivals: Sequence[Arrival]) -> float:
    """Seconds of work that a request brings, without hops."""
    return fmean(costs.answer_s(a.live, len(a.cold)) + sum(map(costs.build_s, a.cold)) for a in arrivals)


def busy_rows(
    costs: Costs,
    traffic: Traffic,
    workers: int,
    placements: Sequence[Placement],
    *,
    load: float,
    requests: int,
    spread: float,
    loss_every_s: float,
    away_s: float,
    detect_s: float,
    seed: int,
) -> list[dict[str, Any]]:
    """A fleet under load: the same requests, speeds and losses under every policy.

    Args:
        load: Share of the workers' time that the requests' own work takes.
        loss_every_s: Mean seconds between two losses of a worker; 0 for none.
    """
    rate = load * workers / mean_work_s(costs, traffic.arrivals(20_000, 1.0, seed))
    arrivals = traffic.arrivals(requests, rate, seed)
    given = speeds(workers, spread, seed)
    # Losses beyond the last arrival matter while its builds run.
    losses = loss_times(workers, 2 * arrivals[-1].at_s, loss_every_s, seed)
    rows: list[dict[str, Any]] = []
    for placement in placements:
        fleet = Fleet(costs, placement, given, losses=losses, away_s=away_s, detect_s=detect_s)
        records = fleet.run(arrivals)[round(_SETTLING * requests) :]
        busy = sum(worker.busy_s for worker in fleet.workers) / (workers * fleet.now)
        rows.append(_busy_row(workers, placement, records, busy, loss_every_s))
    single = next((row for row in rows if row["policy"] == SINGLE.name), None)
    for row in rows:
        row["others_p95_vs_single"] = None if single is None else row["others_p95_s"] / single["others_p95_s"]
    return rows


def _busy_row(
    workers: int, placement: Placement, records: Sequence[Record], busy: float, loss_every_s: float
) -> dict[str, Any]:
    cold = [record.ttft_s for record in records if record.arrival.is_cold]
    others = [record.ttft_s for record in records if not record.arrival.is_cold]
    return {
        "workers": workers,
        "losses": f"every {loss_every_s:g} s" if loss_every_s else "none",
        "policy": placement.name,
        "cold_p50_s": quantile(cold, 0.5),
        "cold_p95_s": quantile(cold, 0.95),
        "others_p50_s": quantile(others, 0.5),
        "others_p95_s": quantile(others, 0.95),
        "others_p95_vs_single": None,
        "busy": busy,
        "remote": sum(record.remote for record in records),
        "lost": sum(record.lost for record in records),
        "local": sum(record.local for record in records),
        "restarts": sum(record.restarts for record in records),
    }


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
