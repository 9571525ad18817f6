"""Time to first token of a cold prompt: worker processes of one thread each, against one of them and full recompute.

The workers' start, loading the model and one repeat are not timed: a pool lives as long as its engine. Every repeat has
documents of its own, so that nothing is warm; all forms answer the same prompts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from hypic_agents.bench.cold_recorder import Recorder, measure_link
from hypic_agents.bench.cold_samples import sample_builds
from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.bench.timing import Progress, Timings, interleave
from hypic_agents.completion import Completion
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import HypicError, InvalidPolicy
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.workers.contract import ColdPrefillPool, WorkerSpec
from hypic_agents.runtime.workers.dispatch import Limits, WorkerPool
from hypic_agents.runtime.workers.local import LocalPool
from hypic_agents.runtime.workers.process import ProcessWorkers

SHAPE = Shape(num_documents=11, document_len=600, system_len=32, question_len=64)
_FIRST_TOKEN = SamplingParams(max_tokens=1)
_SOME_TOKENS = SamplingParams(max_tokens=6)
_READY_S = 600.0
_FULL = ("full_one_thread", "full_all_threads")
_EXCLUDED = "the workers' start, loading the model, and one untimed repeat of every form"


@dataclass(frozen=True, slots=True)
class _Form:
    """One way to answer: an engine with a store of its own, its policy, and the threads of this process."""

    engine: Engine
    policy: str
    threads: int

    def answer(self, prompt: Prompt, sampling: SamplingParams) -> Completion:
        torch.set_num_threads(self.threads)
        return self.engine.generate(prompt, sampling, self.policy)


def run(
    engine: Engine,
    *,
    workers: int = 2,
    repeats: int,
    seed: int,
    progress: Progress,
    shape: Shape = SHAPE,
    hop_s: float | None = None,
) -> dict[str, Any]:
    """Time the same cold prompts on ``workers`` processes, on one, in this process, and recomputed in full.

    Args:
        engine: Its model, by a name that workers can load, and its default policy are measured.
        workers: Processes of the larger pool, at least 2.
        repeats: Timed repeats behind one untimed.
        seed: Of tokens and orders.
        progress: Told of stages and repeats.
        shape: Sizes of the prompts.
        hop_s: Builds of at most this many seconds stay in this process; None lets the pool measure.

    Raises:
        HypicError: forms answer differently, or a worker failed meanwhile: then nothing is reported.
    """
    policy = engine.config.default_policy
    if policy.exact or policy.prefix:
        raise InvalidPolicy(f"policy {policy.name!r} builds no segments; there is nothing to measure")
    # Seeds from 0 on: Python's generator takes -2 for 2, and a prompt that was seen before is not cold.
    prompts = {r: Prompts(shape, engine.model.vocab_size, seed + 2 + r).shuffled() for r in range(-2, repeats)}
    threads = torch.get_num_threads()
    with _forms(engine, workers, hop_s, progress) as (forms, recorders):
        try:
            _require_agreement(forms, prompts[-2], progress)
            answers: dict[str, Completion] = {}
            modes = {name: partial(_timed, name, form, prompts, answers) for name, form in forms.items()}
            timings = interleave(modes, repeats=repeats, progress=progress, stage="timing cold prompts")
        finally:
            torch.set_num_threads(threads)
        _require_clean(answers)
        simulation = _simulation(recorders, answers["one_worker"], timings["one_worker"], repeats)
    simulation["samples"] = sample_builds(engine, seed=seed)
    return _result(timings, answers, shape, engine, workers) | {"simulation": simulation}


def _timed(name: str, form: _Form, prompts: Mapping[int, Prompt], answers: dict[str, Completion], repeat: int) -> None:
    answers[name] = answer = form.answer(prompts[repeat], _FIRST_TOKEN)
    if answer.report.reused_tokens:
        raise HypicError(f"no speed is reported: {name} reused {answer.report.reused_tokens} tokens of a cold prompt")


@contextmanager
def _forms(
    engine: Engine, workers: int, hop_s: float | None, progress: Progress
) -> Iterator[tuple[dict[str, _Form], dict[str, Recorder]]]:
    policy = engine.config.policy
    name = policy if isinstance(policy, str) else policy.name
    recorders = {"workers": _recorded_pool(engine, workers, hop_s), "one_worker": _recorded_pool(engine, 1, hop_s)}
    try:
        for done, recorder in enumerate(recorders.values()):
            if recorder.warm_up(_READY_S) != recorder.num_workers:
                raise HypicError("no speed is reported: a worker could not be started")
            progress("starting workers", done + 1, len(recorders))
        forms = {form: _Form(_engine(engine, pool), name, 1) for form, pool in recorders.items()}
        forms["local"] = _Form(_engine(engine, LocalPool(engine.model, engine.config.max_pass_tokens)), name, 1)
        forms["full_one_thread"] = _Form(engine, "exact", 1)
        forms["full_all_threads"] = _Form(engine, "exact", _cores())
        yield forms, recorders
    finally:
        for recorder in recorders.values():
            recorder.close()


def _recorded_pool(engine: Engine, workers: int, hop_s: float | None) -> Recorder:
    config = engine.config
    spec = WorkerSpec(engine.name, engine.fingerprint, workers, config.model_dtype, config.device, threads=1)
    local = LocalPool(engine.model, config.max_pass_tokens)
    group = ProcessWorkers(spec, str(engine.model.device))
    return Recorder(WorkerPool(group, local, Limits(), hop_s=hop_s), workers)


def _engine(engine: Engine, pool: ColdPrefillPool) -> Engine:
    """An engine on the same weights whose store is empty."""
    config = EngineConfig(policy=engine.config.policy, prefix_bytes=0)
    return Engine(engine.model, engine.tokenizer, engine.fingerprint, config, name=engine.name, pool=pool)


def _require_agreement(forms: Mapping[str, _Form], prompt: Prompt, progress: Progress) -> None:
    """Some greedy tokens of every form: the cold forms must agree, and so must both ways to recompute in full."""
    answers: dict[str, tuple[int, ...]] = {}
    for done, (name, form) in enumerate(forms.items()):
        answers[name] = form.answer(prompt, _SOME_TOKENS).token_ids
        progress("checking agreement", done + 1, len(forms))
    for group in ([n for n in forms if n not in _FULL], _FULL):
        if len({answers[name] for name in group}) != 1:
            found = ", ".join(f"{name} {list(answers[name])}" for name in group)
            raise HypicError(f"no speed is reported: the forms answer differently: {found}")


def _require_clean(answers: Mapping[str, Completion]) -> None:
    cold = {name: one for name, one in answers.items() if name not in _FULL}
    for name, one in cold.items():
        report = one.report
        if report.builds.retries or report.builds.problems:
            raise HypicError(f"no speed is reported: workers failed meanwhile: {'; '.join(report.builds.problems)}")
        if report.reused_tokens or not report.cold_tokens:
            raise HypicError(f"no speed is reported: {name} found {report.reused_tokens} tokens that were not cold")
    if len({one.token_ids for one in cold.values()}) != 1:
        raise HypicError("no speed is reported: the forms answer the last prompt differently")


def _simulation(recorders: Mapping[str, Recorder], answer: Completion, timing: Timings, repeats: int) -> dict[str, Any]:
    """The run in the fields that the simulation reads."""
    one, many = recorders["one_worker"], recorders["workers"]
    makespan_s, prefix_s = one.makespan(repeats), one.prefix_s(repeats)
    return {
        "jobs": one.jobs(repeats),
        "makespan_s": {"1": makespan_s, str(many.num_workers): many.makespan(repeats)},
        "prefix_s": prefix_s,
        "answer_s": max(0.0, timing.median - makespan_s - prefix_s),
        "live_tokens": answer.report.live_tokens,
        "link_bytes_s": measure_link(one.last_payload),
    }


def _result(
    timings: Mapping[str, Timings], answers: Mapping[str, Completion], shape: Shape, engine: Engine, workers: int
) -> dict[str, Any]:
    ours = timings["workers"]
    # Within a repeat, so that what the machine does meanwhile falls on both.
    ratios = {
        name: [a / b for a, b in zip(timing.seconds, ours.seconds, strict=True)] for name, timing in timings.items()
    }
    against = {f"speedup_vs_{name}": found for name, found in ratios.items() if name != "workers"}
    report = answers["workers"].report
    return {
        "rows": [
            {
                "form": name,
                "ttft_s": timing.median,
                "fastest_s": timing.spread[0],
                "slowest_s": timing.spread[1],
                "speedup": median(ratios[name]),
            }
            for name, timing in timings.items()
        ],
        **{name: median(found) for name, found in against.items()},
        "speedup_spread": {name: [min(found), max(found)] for name, found in against.items()},
        "ttft_s": {name: timing.median for name, timing in timings.items()},
        "ttft_spread_s": {name: list(timing.spread) for name, timing in timings.items()},
        "seconds_each": {name: list(timing.seconds) for name, timing in timings.items()},
        "workers": workers,
        "threads_each": 1,
        "all_threads": _cores(),
        "segments": shape.num_documents,
        "segment_tokens": shape.document_len,
        "prompt_tokens": report.prompt_tokens,
        "live_tokens": report.live_tokens,
        "built_by_workers": report.builds.workers,
        "built_here": report.builds.local,
        "answers_identical": True,
        "excluded": _EXCLUDED,
        "policy": engine.config.default_policy.name,
        "repeats": len(ours.seconds),
        "params": sum(p.numel() for p in engine.model.hf.parameters()),
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
