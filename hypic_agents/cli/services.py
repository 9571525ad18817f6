"""What the commands call in the rest of the package: loaded when first used, replaceable as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypic_agents.bench.cold_simulation import Settings
    from hypic_agents.quality.calibrate.prompts import PromptRecord
    from hypic_agents.runtime.engine import Engine
    from hypic_agents.runtime.policy import ReusePolicy
    from hypic_agents.runtime.policy_file import PolicyFile

# progress(stage, done, total): called as work advances; a new stage name starts a new bar.
Progress = Callable[[str, int, int], None]


def _load_engine(
    model: str, *, policy: str, threads: int | None, store_dir: str | None = None, store_url: str | None = None
) -> Engine:
    from hypic_agents.runtime.config import EngineConfig
    from hypic_agents.runtime.engine import Engine

    return Engine.load(model, EngineConfig(policy=policy, threads=threads, store_dir=store_dir, store_url=store_url))


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


def _run_explain(
    engine: Engine,
    *,
    questions_per_task: int,
    policy: str,
    tasks: Sequence[str] | None,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    from hypic_agents.quality.explain.run import run_explain

    return run_explain(
        engine, questions_per_task=questions_per_task, policy=policy, tasks=tasks, seed=seed, progress=progress
    )


def _run_calibrate(
    engine: Engine,
    records: Sequence[PromptRecord],
    candidates: Sequence[ReusePolicy],
    *,
    budget: float,
    confidence: float,
    splits: int,
    seed: int,
    max_tokens: int,
    progress: Progress,
) -> tuple[dict[str, Any], PolicyFile]:
    from hypic_agents.quality.calibrate import report
    from hypic_agents.quality.calibrate.run import calibrate

    result = calibrate(
        engine,
        records,
        candidates,
        budget=budget,
        confidence=confidence,
        splits=splits,
        seed=seed,
        max_tokens=max_tokens,
        progress=progress,
    )
    return report.to_dict(result), report.policy_file(result, fingerprint=engine.fingerprint, model=engine.name)


def _bench_warm(engine: Engine, *, repeats: int, seed: int, progress: Progress) -> dict[str, Any]:
    from hypic_agents.bench import warm

    return warm.run(engine, repeats=repeats, seed=seed, progress=progress)


def _bench_compose(engine: Engine, *, repeats: int, seed: int, progress: Progress) -> dict[str, Any]:
    from hypic_agents.bench import compose

    return compose.run(engine, repeats=repeats, seed=seed, progress=progress)


def _bench_grammar(engine: Engine, *, repeats: int, seed: int, progress: Progress) -> dict[str, Any]:
    from hypic_agents.bench import grammar

    return grammar.run(engine, repeats=repeats, seed=seed, progress=progress)


def _bench_cold(engine: Engine, *, workers: int, repeats: int, seed: int, progress: Progress) -> dict[str, Any]:
    from hypic_agents.bench import cold

    return cold.run(engine, workers=workers, repeats=repeats, seed=seed, progress=progress)


def _bench_memory(engine: Engine, *, seed: int, progress: Progress) -> dict[str, Any]:
    from hypic_agents.bench import memory

    return memory.run(engine, seed=seed, progress=progress)


def _bench_churn(*, progress: Progress, **settings: Any) -> dict[str, Any]:
    from hypic_agents.bench import churn

    return churn.run(progress=progress, **settings)


def _simulate_cold(source: Engine | Path, *, settings: Settings, progress: Progress) -> dict[str, Any]:
    """Simulate with the costs of a measured run: one in a file, or one that is made now on an engine."""
    from hypic_agents.bench import cold_simulation
    from hypic_agents.bench.cold_simulation_measured import Measured

    if isinstance(source, Path):
        measured = Measured.read(source)
    else:
        measured = Measured.of(_bench_cold(source, workers=2, repeats=3, seed=settings.seed, progress=progress))
    return cold_simulation.run(measured, progress=progress, settings=settings)


@dataclass(frozen=True, slots=True)
class Services:
    """The commands' dependencies. ``main(Services(load_engine=...))`` runs the same commands on another engine.

    ``run_eval`` and the benchmarks return a JSON-ready dict: ``rows``, a list of flat dicts that share their keys,
    is shown as a table; every other scalar entry is shown below it. ``run_calibrate`` returns a dict and the content of
    the policy file.
    """

    load_engine: Callable[..., Engine] = _load_engine
    run_eval: Callable[..., dict[str, Any]] = _run_eval
    run_explain: Callable[..., dict[str, Any]] = _run_explain
    run_calibrate: Callable[..., tuple[dict[str, Any], PolicyFile]] = _run_calibrate
    bench_warm: Callable[..., dict[str, Any]] = _bench_warm
    bench_compose: Callable[..., dict[str, Any]] = _bench_compose
    bench_cold: Callable[..., dict[str, Any]] = _bench_cold
    bench_memory: Callable[..., dict[str, Any]] = _bench_memory
    bench_churn: Callable[..., dict[str, Any]] = _bench_churn
    bench_grammar: Callable[..., dict[str, Any]] = _bench_grammar
    simulate_cold: Callable[..., dict[str, Any]] = _simulate_cold
