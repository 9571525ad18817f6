"""What ``EngineConfig(cold_prefill=...)`` selects, and how the form without workers computes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from hypic_agents.core import Prompt
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.audit.passes import payload_difference
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.workers import local as local_module
from hypic_agents.runtime.workers.contract import BuildJob
from hypic_agents.runtime.workers.factory import make_pool
from hypic_agents.runtime.workers.local import LocalPool
from tests.runtime.models import engine, hybrid, make_prompt, segment_ids


@pytest.mark.parametrize("value", ["", "process", "processes:", "processes:0", "processes:two", "local:2", "ray:-1"])
def test_bad_values_are_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidInput, match=f"cold_prefill={value!r}: use one of local, processes, ray"):
        EngineConfig(cold_prefill=value)


@pytest.mark.parametrize(
    ("field", "value"), [("cold_retries", -1), ("cold_deadline_factor", 0.0), ("cold_deadline_floor_s", float("nan"))]
)
def test_bad_limits_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"{field}={value}"):
        EngineConfig(**{field: value})


def test_forms_and_numbers_are_told_apart() -> None:
    assert EngineConfig().cold_form == ("local", None)
    assert EngineConfig(cold_prefill="processes").cold_form == ("processes", None)
    assert EngineConfig(cold_prefill="ray:12").cold_form == ("ray", 12)


def test_the_default_needs_nothing() -> None:
    pool = make_pool(EngineConfig(), hybrid("qwen3_5"), "", "f")
    assert isinstance(pool, LocalPool)
    assert pool.warm_up(0) == 0
    assert not pool.spare


@pytest.mark.parametrize("form", ["processes", "ray:2"])
def test_workers_need_a_model_that_has_a_name(form: str) -> None:
    with pytest.raises(InvalidInput, match=r"Engine\.load"):
        make_pool(EngineConfig(cold_prefill=form), hybrid("qwen3_5"), "", "f")


def jobs(*lengths: int) -> list[BuildJob]:
    rng = random.Random(0)
    return [BuildJob(i, segment_ids(rng, n), 8, 8) for i, n in enumerate(lengths)]


def test_local_passes_keep_to_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[list[int]] = []
    compute = local_module.compute

    def watched(model: Any, chosen: Any) -> Any:
        passes.append([job.num_tokens for job in chosen])
        return compute(model, chosen)

    monkeypatch.setattr(local_module, "compute", watched)
    pool = LocalPool(hybrid("qwen3_5"), 100)
    pool.submit(jobs(40, 120, 60, 30, 50))
    pool.cancel([4])
    assert [sorted(one.job.id for one in pool.poll()) for _ in range(4)] == [[1], [0, 2], [3], []]
    assert passes == [[120], [60, 40], [30]]


def test_a_prefix_that_is_not_there_yet_may_be_computed_in_front() -> None:
    rng = random.Random(1)
    system, head = segment_ids(rng, 37), jobs(90)[0]
    pool = LocalPool(hybrid("qwen3_5"), 1000)
    (made,) = pool.compute([BuildJob(1, system, 0, 0, is_prefix=True)])
    behind = replace(head, prefix_ids=system, prefix=made.payload)
    here = replace(head, prefix_ids=system, prefix_live=True)
    ours, theirs, alone = (pool.compute([one])[0].payload for one in (here, behind, head))
    assert payload_difference(ours, theirs).error < 1e-5  # type: ignore[arg-type]
    assert payload_difference(ours, alone).error > 1e-3  # type: ignore[arg-type]


def test_owners_take_turns_in_local_passes() -> None:
    pool = LocalPool(hybrid("qwen3_5"), 100)
    one, two = ([replace(job, id=job.id + 10 * owner, owner=owner) for job in jobs(120, 110, 60)] for owner in (1, 2))
    pool.submit(one)
    pool.submit(two[1:])
    assert [[built.job.id for built in pool.poll()] for _ in range(6)] == [[10], [21], [11], [22, 12], [], []]


def test_a_job_that_cannot_be_computed_fails_alone() -> None:
    pool = LocalPool(hybrid("qwen3_5"), 32_768)
    bad = BuildJob(9, (10**9, *range(20)), 8, 8)  # no such token
    pool.submit([*jobs(40, 50), bad])
    built = {one.job.id: one for one in pool.poll()}
    assert [built[i].error for i in (0, 1)] == [None, None]
    assert isinstance(built[9].error, IndexError)
    assert built[9].payload is None


def test_a_build_that_fails_fails_its_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    one = engine("qwen3_5")
    rng = random.Random(1)
    good, bad = (make_prompt([segment_ids(rng, 60)], system=segment_ids(rng, 20)) for _ in range(2))
    compute = local_module.compute
    marked = bad.spans[-1].token_ids[20:40]

    def failing(model: Any, chosen: Any) -> Any:
        for job in chosen:
            if any(job.token_ids[i : i + 20] == marked for i in range(len(job.token_ids))):
                raise RuntimeError("no memory, says the test")
        return compute(model, chosen)

    monkeypatch.setattr(local_module, "compute", failing)
    requests = [one.submit(prompt) for prompt in (good, bad, Prompt(good.token_ids))]
    while not all(request.done for request in requests):
        one.step()
    assert [request.error is None for request in requests] == [True, False, True]
    assert "no memory" in str(requests[1].error)
    assert one.stats().pinned == 0
    one.store.check_integrity()
