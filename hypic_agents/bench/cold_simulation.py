"""Cold prefill on many workers, simulated with the costs of a real run: how far it scales, and whom it delays.

A fleet in the simulation is one of equals: each worker serves requests and builds segments for others. Real pools have
been measured on one machine only; the simulation's prediction of that run is part of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hypic_agents.bench.cold_simulation_fleet import require_simpy
from hypic_agents.bench.cold_simulation_measured import Measured, predict
from hypic_agents.bench.cold_simulation_placement import LPT_IDLE, LPT_SPARE, POLICIES, ROUND_ROBIN
from hypic_agents.bench.cold_simulation_report import alone_rows, busy_rows
from hypic_agents.bench.cold_simulation_workload import Shape, Traffic
from hypic_agents.bench.timing import Progress
from hypic_agents.errors import InvalidInput

WORKERS = (8, 64, 512)
MOST_WORKERS = 4_096
SPREAD = 0.6
# The claims that the simulation examines: at 8 workers, on enough segments.
_CLAIM_WORKERS, _CLAIM_SPEEDUP, _CLAIM_OVER_BOUND, _CLAIM_OTHERS = 8, 6.5, 1.05, 1.10


@dataclass(frozen=True, slots=True)
class Settings:
    """What is simulated.

    Attributes:
        workers: Sizes of pools and fleets.
        network_bytes_s: What a worker takes in a second; None for what was measured.
        load: Share of the fleet's time that requests' own work takes.
        cold_share: Share of a fleet's requests that are cold prompts of 11 uneven segments.
        speed_spread: Standard deviation of the logarithm of workers' speeds in fleets.
        noise: The same of how much longer than predicted a build takes; None for what was measured.
        loss_every_s, away_s, detect_s: Mean time between two losses of a worker, how long it stays away, and how long
            it takes to notice, for the rows with losses. Far more often than in practice, so that losses are seen.
        requests: Of each fleet; None for 40 a worker, but 4,000 at least.
        draws: Most prompts of a shape over which the rows of prompts alone are averaged.
        seed: Of all random choices, which are the same under every policy.

    Raises:
        InvalidInput: settings that cannot be simulated.
    """

    workers: tuple[int, ...] = WORKERS
    network_bytes_s: float | None = None
    load: float = 0.5
    cold_share: float = 0.02
    speed_spread: float = 0.1
    noise: float | None = None
    loss_every_s: float = 120.0
    away_s: float = 30.0
    detect_s: float = 0.5
    requests: int | None = None
    draws: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.workers or not all(1 <= count <= MOST_WORKERS for count in self.workers):
            raise InvalidInput(f"workers={','.join(map(str, self.workers))}: use numbers from 1 to {MOST_WORKERS}")
        if not 0 < self.load < 1:
            raise InvalidInput(f"load={self.load}: use a share above 0 and below 1")
        if self.network_bytes_s is not None and not self.network_bytes_s > 0:
            raise InvalidInput(f"network_bytes_s={self.network_bytes_s}: use a number above 0")
        if self.requests is not None and self.requests < 100:
            raise InvalidInput(f"requests={self.requests}: use 100 or more, or a p95 means nothing")


def run(measured: Measured, *, progress: Progress, settings: Settings = Settings()) -> dict[str, Any]:
    """Simulate cold prompts in front of idle pools, and among other requests in busy fleets.

    Args:
        measured: A real run, from which the costs come.
        progress: Told of every part.
        settings: What to simulate.

    Raises:
        HypicError: simpy is not installed.
        InvalidInput: settings that cannot be simulated.
    """
    require_simpy()
    costs = measured.costs()
    prediction = predict(measured)
    if settings.network_bytes_s is not None:
        costs = replace(costs, link_bytes_s=settings.network_bytes_s)
    noise = measured.noise() if settings.noise is None else settings.noise
    alone: list[dict[str, Any]] = []
    for done, workers in enumerate(settings.workers, 1):
        for shape in _shapes(workers):
            alone += alone_rows(
                costs,
                shape,
                workers,
                (LPT_IDLE, ROUND_ROBIN),
                noise=noise,
                draws=settings.draws,
                seed=settings.seed,
            )
        progress("prompts alone", done, len(settings.workers))
    traffic = Traffic(Shape(11, spread=SPREAD), settings.cold_share, noise=noise)
    busy: list[dict[str, Any]] = []
    for done, workers in enumerate(settings.workers, 1):
        for loss_every_s, placements in ((0.0, POLICIES), (settings.loss_every_s, (LPT_IDLE, LPT_SPARE))):
            busy += busy_rows(
                costs,
                traffic,
                workers,
                placements,
                load=settings.load,
                requests=settings.requests or max(4_000, 40 * workers),
                spread=settings.speed_spread,
                loss_every_s=loss_every_s,
                away_s=settings.away_s,
                detect_s=settings.detect_s,
                seed=settings.seed,
            )
        progress("busy fleets", done, len(settings.workers))
    return {
        "alone": alone,
        "busy": busy,
        "prediction": prediction,
        "prediction_error": prediction["error"],
        **_findings(alone, busy),
        "measured": dict(measured.origin),
        "simulation": measured.to_json(),
        "costs": asdict(costs),
        "settings": asdict(settings) | {"noise": noise},
    }


def _shapes(workers: int) -> list[Shape]:
    """Prompts that users have, and for large pools one that fills them: four segments a worker."""
    shapes = [Shape(11), Shape(32), Shape(64), Shape(11, spread=SPREAD), Shape(32, spread=SPREAD)]
    shapes.append(Shape(64, spread=SPREAD))
    return shapes if 4 * workers <= 64 else [*shapes, Shape(4 * workers, spread=SPREAD)]


def _findings(alone: Sequence[dict[str, Any]], busy: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Where the claims hold: shapes that 8 workers build fast enough, and near enough to the bound; and who waits."""
    at = [row for row in alone if row["workers"] == _CLAIM_WORKERS and row["policy"] == LPT_IDLE.name]
    ratios = {(row["workers"], row["policy"]): row["others_p95_vs_single"] for row in busy if row["losses"] == "none"}
    worst = {
        placement.name: max(ratio for (_, name), ratio in ratios.items() if name == placement.name)
        for placement in (LPT_IDLE, LPT_SPARE)
    }
    return {
        "speedup_reached": [row["shape"] for row in at if row["build_speedup"] >= _CLAIM_SPEEDUP],
        "speedup_missed": [row["shape"] for row in at if row["build_speedup"] < _CLAIM_SPEEDUP],
        "ttft_speedup_reached": [row["shape"] for row in at if row["ttft_speedup"] >= _CLAIM_SPEEDUP],
        "near_bound": [row["shape"] for row in at if row["over_bound"] <= _CLAIM_OVER_BOUND],
        "not_near_bound": [row["shape"] for row in at if row["over_bound"] > _CLAIM_OVER_BOUND],
        "others_p95_worst": worst,
        "others_unharmed_by": [name for name, ratio in worst.items() if ratio <= _CLAIM_OTHERS],
    }
