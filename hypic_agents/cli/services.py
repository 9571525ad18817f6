"""What the commands call in the rest of the package: loaded when first used, replaceable as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

# progress(stage, done, total): called as work advances; a new stage name starts a new bar.
Progress = Callable[[str, int, int], None]


def _load_engine(model: str, *, policy: str, threads: int | None) -> Engine:
    from hypic_agents.runtime.config import EngineConfig
    from hypic_agents.runtime.engine import Engine

    return Engine.load(model, EngineConfig(policy=policy, threads=threads))


def _run_eval(
    engine: Engine,
    *,
    questions_per_task: int,
    presets: Sequence[str],
    tasks: Sequence[str] | None,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    from hypic_agents.quality.evaluate import run_eval

    return run_eval(
        engine, questions_per_task=questions_per_task, presets=presets, tasks=tasks, seed=seed, progress=progress
    )


def _bench_warm(engine: Engine, *, repeats: int, seed: int, progress: Progress) -> dict[str, Any]:
    from hypic_agents.bench import warm

    return warm.run(engine, repeats=repeats, seed=seed, progress=progress)


def _bench_compose(engine: Engine, *, repeats: int, seed: int, progress: Progress) -> dict[str, Any]:
    from hypic_agents.bench import compose

    return compose.run(engine, repeats=repeats, seed=seed, progress=progress)


@dataclass(frozen=True, slots=True)
class Services:
    """The commands' dependencies. ``main(Services(load_engine=...))`` runs the same commands on another engine.

    ``run_eval`` and the benchmarks return a JSON-ready dict: ``rows``, a list of flat dicts that share their keys,
    is shown as a table; every other scalar entry is shown below it.
    """

    load_engine: Callable[..., Engine] = _load_engine
    run_eval: Callable[..., dict[str, Any]] = _run_eval
    bench_warm: Callable[..., dict[str, Any]] = _bench_warm
    bench_compose: Callable[..., dict[str, Any]] = _bench_compose
