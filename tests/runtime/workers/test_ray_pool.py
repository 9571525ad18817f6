"""Ray actors as workers: the contract on a stand-in for Ray, and Ray itself on this machine (slow)."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.core import SamplingParams
from hypic_agents.errors import HypicError, InvalidInput, ModelNotFound
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.models.registry import LoadedModel, load_model
from hypic_agents.runtime.state import LinearPayload, SegmentPayload
from hypic_agents.runtime.workers.contract import BuildJob, Built, DamagedPayload, WorkerSpec
from hypic_agents.runtime.workers.dispatch import Limits, WorkerPool
from hypic_agents.runtime.workers.local import LocalPool
from hypic_agents.runtime.workers.ray_pool import RayWorkers
from hypic_agents.runtime.workers.ray_worker import RayWorker, Shelf
from hypic_agents.runtime.workers.wire import encode_payload, to_bytes
from tests.runtime.workers.fake_ray import FakeRay

SPEC = WorkerSpec("model", "fingerprint", num_workers=2, backoff_s=1.0, max_restarts=1, start_s=50.0)


def payload_of(job: BuildJob) -> SegmentPayload:
    """A payload that tells which job it is of."""
    state = torch.full((1, 2, 2), float(sum(job.token_ids)))
    return SegmentPayload((LinearPayload(state, state + 1, torch.zeros(3, 2)),), job.num_tokens, False)


def value(payload: Any) -> float:
    return float(payload.layers[0].transition[0, 0, 0])


def job(number: int, *, tokens: Sequence[int] = (), prefix: bool = False, hold: str = "") -> BuildJob:
    ids = tuple(tokens) or tuple(range(number, number + 4))
    behind = {"prefix_ids": (1, 2), "prefix": payload_of(BuildJob(0, (1, 2), 0, 0))} if prefix else {}
    return BuildJob(number, ids, 1, 1, hold=hold, **behind)  # type: ignore[arg-type]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Setup:
    """A group on a stand-in for Ray whose workers compute ``payload_of``."""

    def __init__(self, **resources: float) -> None:
        self.computed: list[int] = []
        self.failing: set[int] = set()
        self.refusing = False
        self.clock = Clock()
        self.ray = FakeRay(self.load, **resources)

    def load(self, spec: WorkerSpec, check: Callable[[], None]) -> tuple[Any, str]:
        if self.refusing:
            raise ValueError("another model")

        def compute(job: BuildJob) -> tuple[SegmentPayload, float]:
            check()
            self.computed.append(job.id)
            if job.id in self.failing:
                raise RuntimeError("it does not fit")
            return payload_of(job), 0.25

        return compute, "cpu"

    def group(self, spec: WorkerSpec = SPEC, **settings: Any) -> RayWorkers:
        return RayWorkers(spec, clock=self.clock, ray=self.ray, **settings)

    def ready(self, spec: WorkerSpec = SPEC, **settings: Any) -> RayWorkers:
        group = self.group(spec, **settings)
        assert group.idle == ()
        assert group.poll() == []
        return group


def test_jobs_go_to_idle_actors_and_payloads_come_back() -> None:
    setup = Setup()
    group = setup.ready()
    assert (group.idle, group.alive) == ((0, 1), 2)
    group.send(1, job(7))
    assert group.idle == (0,)
    (news,) = group.poll()
    assert (news.worker, news.job_id, news.build_s, news.problem, news.lost) == (1, 7, 0.25, "", False)
    assert news.load is not None and value(news.load()) == sum(range(7, 11))
    assert group.idle == (0, 1)
    assert group.poll() == []


def test_actors_take_what_the_cluster_has() -> None:
    cpu, gpu = Setup(), Setup(GPU=3.0)
    cpu.group(WorkerSpec("model", "f", threads=2))
    gpu.group(WorkerSpec("model", "f"))
    assert [(o["num_cpus"], o["num_gpus"], o["max_restarts"]) for o in cpu.ray.options] == [(2, 0, 0)] * 2
    assert [(o["num_cpus"], o["num_gpus"]) for o in gpu.ray.options] == [(1, 1)] * 3


def test_a_prefix_is_stored_once_and_sent_once_to_each_actor() -> None:
    setup = Setup()
    group = setup.ready()
    for number in (1, 2):
        group.send(0, job(number, prefix=True))
        assert group.poll()[0].load is not None
    group.send(1, job(3, prefix=True))
    assert group.poll()[0].load is not None
    assert setup.ray.puts == 1
    assert [actor.log.count("keep") for actor in setup.ray.actors] == [1, 1]


def test_a_job_that_fails_is_news_and_its_actor_goes_on() -> None:
    setup = Setup()
    group = setup.ready()
    setup.failing = {5}
    group.send(0, job(5))
    (news,) = group.poll()
    assert news.load is None and not news.lost
    assert "worker 0 failed: RuntimeError: it does not fit" in news.problem
    assert group.idle == (0, 1)


def test_a_dead_actor_is_lost_rested_and_started_again_as_often_as_allowed() -> None:
    setup = Setup()
    group = setup.ready()
    setup.ray.actors[0].is_stuck = True
    group.send(0, job(1))
    assert group.poll() == []
    setup.ray.actors[0].is_dead = True
    (news,) = group.poll()
    assert (news.job_id, news.load, news.lost) == (1, None, True)
    assert news.problem == group.trouble == "worker 0 was lost: RayError: the actor died unexpectedly"
    assert (group.idle, group.alive) == ((1,), 2)
    setup.clock.now = 0.9
    group.poll()
    assert len(setup.ray.actors) == 2
    setup.clock.now = 1.1
    group.poll()
    group.poll()
    assert (len(setup.ray.actors), group.idle) == (3, (0, 1))
    group.abandon(0)
    group.poll()
    assert (group.idle, group.alive) == ((1,), 1)


def test_an_actor_without_a_place_is_late() -> None:
    setup = Setup()
    group = setup.group()
    setup.ray.actors[1].is_stuck = True
    setup.clock.now = 51.0
    assert group.poll() == []
    assert group.idle == (0,)
    assert "the cluster may lack free resources" in group.trouble
    assert setup.ray.actors[1].is_dead


def test_an_actor_that_refuses_to_load_is_given_up() -> None:
    setup = Setup()
    setup.refusing = True
    group = setup.group()
    group.poll()
    assert (group.alive, group.idle) == (0, ())
    assert group.trouble == "worker 1 cannot work: ValueError: another model"


def test_a_cancelled_job_is_not_computed() -> None:
    setup = Setup()
    group = setup.ready()
    group.send(0, job(1))
    # Control calls overtake builds.
    group.cancel(0, 1)
    calls = setup.ray.actors[0].calls
    calls.insert(0, calls.pop())
    (news,) = group.poll()
    assert (news.job_id, news.load) == (1, None)
    assert setup.computed == []
    group.send(0, job(2))
    assert group.poll()[0].load is not None


def test_an_abandoned_actor_says_nothing_of_its_job() -> None:
    setup = Setup()
    group = setup.ready()
    setup.ray.actors[0].is_stuck = True
    group.send(0, job(1))
    group.abandon(0)
    assert setup.ray.actors[0].is_dead
    assert group.poll() == []
    assert group.idle == (1,)


def test_what_an_actor_holds_is_fetched_from_there() -> None:
    setup = Setup()
    group = setup.ready()
    group.send(1, job(1, tokens=(4, 5, 6), hold="a"))
    group.poll()
    group.send(0, job(2, tokens=(4, 5, 6), hold="a"))
    (news,) = group.poll()
    assert (news.worker, news.job_id, news.build_s) == (0, 2, 0.0)
    assert news.load is not None and value(news.load()) == 15
    assert setup.computed == [1]
    assert group.fetched == 1
    group.send(0, job(3, tokens=(4, 5, 6), hold="another scope, or a later epoch"))
    group.poll()
    assert setup.computed == [1, 3]


@pytest.mark.parametrize("how", ["evicted", "dead"])
def test_what_an_actor_holds_no_more_is_computed(how: str) -> None:
    setup = Setup()
    group = setup.ready(held_bytes=0 if how == "evicted" else 1 << 20)
    group.send(1, job(1, hold="a"))
    group.poll()
    setup.ray.actors[1].is_dead = how == "dead"
    for worker in (0, 1) if how == "evicted" else (0,):
        group.send(worker, job(2 + worker, tokens=(1, 2, 3, 4), hold="a"))
        news = group.poll() or group.poll()
        assert news[0].worker == worker and news[0].load is not None
        assert value(news[0].load()) == 10
    assert group.fetched == 0


def test_when_ray_is_shut_down_no_worker_is_left() -> None:
    setup = Setup()
    group = setup.ready()
    group.send(0, job(1))
    setup.ray.is_up = False
    group.wait(0.0)
    (news,) = group.poll()
    assert (news.job_id, news.lost, news.problem) == (1, True, "worker 0 was lost: Ray was shut down")
    assert (group.alive, group.idle, group.poll()) == (0, (), [])
    group.close()
    assert setup.ray.shutdowns == 0


def broken(*_: object, **__: object) -> Any:
    raise ConnectionError("Ray is not reached")


def test_an_actor_that_cannot_be_asked_for_is_lost_and_asked_for_again() -> None:
    setup = Setup()
    remote, setup.ray.remote = setup.ray.remote, broken  # type: ignore[method-assign]
    group = setup.group()
    assert (group.poll(), group.idle, group.alive) == ([], (), 2)
    assert group.trouble == "worker 1 was lost: it could not be started: ConnectionError: Ray is not reached"
    setup.ray.remote = remote  # type: ignore[method-assign]
    setup.clock.now = 1.1
    group.poll()
    group.poll()
    assert group.idle == (0, 1)


def test_a_job_that_cannot_be_sent_is_told_as_lost() -> None:
    setup = Setup()
    group = setup.ready()
    setup.ray.put = broken  # type: ignore[method-assign]
    group.send(0, job(3, prefix=True))
    (news,) = group.poll()
    assert (news.worker, news.job_id, news.lost, news.load) == (0, 3, True, None)
    assert "its job cannot be sent: ConnectionError: Ray is not reached" in news.problem
    assert (group.idle, group.alive) == ((1,), 2)
    group.send(1, job(4, prefix=True))
    group.abandon(1)
    assert group.poll() == [], "of what was abandoned, nothing is told"


def test_a_connection_that_breaks_meanwhile_is_no_error_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup()
    group = setup.ready()
    group.send(0, job(1))
    setup.ray.wait = broken  # type: ignore[method-assign]
    group.wait(0.0)
    assert group.poll() == []
    monkeypatch.setattr("tests.runtime.workers.fake_ray.Method.remote", broken)
    setup.ray.kill = broken  # type: ignore[method-assign]
    group.cancel(0, 1)
    (news,) = group.poll()
    assert (news.job_id, news.lost) == (1, True)
    group.close()


def test_a_named_gpu_has_one_actor() -> None:
    setup = Setup(GPU=3.0)
    setup.group(WorkerSpec("model", "f", device="cuda:1"))
    assert [(o["num_cpus"], o["num_gpus"]) for o in setup.ray.options] == [(1, 1)]


def test_a_ray_that_was_started_here_ends_with_its_last_user() -> None:
    setup = Setup()
    first, second = setup.ready(), setup.ready()
    assert len(setup.ray.inits) == 1
    assert all("runtime_env" in options for options in setup.ray.options)
    first.close()
    assert (setup.ray.shutdowns, second.alive) == (0, 2)
    second.send(0, job(1))
    assert second.poll()[0].load is not None
    second.close()
    assert setup.ray.shutdowns == 1


def test_damaged_bytes_are_no_payload() -> None:
    setup = Setup()
    group = setup.ready()
    group.send(0, job(1))
    (news,) = group.poll()
    raw = bytearray(to_bytes(encode_payload(payload_of(job(1)))))
    raw[-20] ^= 1
    news.load.args[1].value = bytes(raw)  # type: ignore[union-attr]
    assert news.load is not None
    with pytest.raises(DamagedPayload, match="checksum"):
        news.load()


def test_a_payload_lost_on_its_way_is_damaged() -> None:
    setup = Setup()
    group = setup.ready()
    group.send(0, job(1))
    (news,) = group.poll()
    news.load.args[1].is_done = False  # type: ignore[union-attr]
    assert news.load is not None
    with pytest.raises(DamagedPayload, match="no payload: RayError"):
        news.load()


def test_closing_kills_actors_and_ends_only_a_ray_that_was_started_here() -> None:
    ours, theirs = Setup(), Setup()
    theirs.ray.is_up = True
    for setup in (ours, theirs):
        group = setup.ready()
        group.close()
        group.close()
        assert all(actor.is_dead for actor in setup.ray.actors)
        assert group.alive == 0
    assert (ours.ray.shutdowns, theirs.ray.shutdowns) == (1, 0)
    assert theirs.ray.inits == []


def test_an_address_is_joined_and_a_wrong_one_is_refused() -> None:
    setup = Setup()
    setup.group(address="10.0.0.1:6379")
    assert setup.ray.inits[0]["address"] == "10.0.0.1:6379"
    assert "runtime_env" not in setup.ray.options[0]
    with pytest.raises(InvalidInput, match=r"nowhere:1.*ray start --head"):
        Setup().group(address="nowhere:1")


def test_a_ray_that_does_not_start_is_one_clear_error() -> None:
    setup = Setup()
    setup.ray.starting_fails = True
    with pytest.raises(HypicError, match="Ray cannot be started here: too slow"):
        setup.group()
    assert setup.ray.shutdowns == 1  # what had started of it


def test_the_shelf_keeps_its_budget() -> None:
    shelf = Shelf(10)
    shelf.put("a", b"12345")
    shelf.put("b", b"1234")
    assert shelf.get("a") == b"12345"
    shelf.put("c", b"12")
    assert (shelf.get("b"), shelf.get("a"), shelf.get("c")) == (None, b"12345", b"12")
    shelf.put("a", b"1")
    shelf.put("d", b"1234567")
    assert (shelf.get("a"), shelf.get("c"), shelf.get("d")) == (b"1", b"12", b"1234567")
    shelf.put("e", bytes(11))
    assert shelf.get("e") is None


def test_a_worker_answers_in_words_whatever_goes_wrong() -> None:
    def load(spec: WorkerSpec, check: Callable[[], None]) -> Any:
        raise ModelNotFound(f"no model at {spec.model!r}\nand more lines")

    worker = RayWorker(100, load)
    assert "no model is loaded" in worker.build(1, b"", None, "")[0]
    assert worker.load({"model": "m", "fingerprint": "f"}) == "ModelNotFound: no model at 'm' and more lines"
    worker.keep("p", b"damaged", ["p"])
    assert worker.fetch("x") == ('{"problem": "it is not held any more"}', b"")


# Ray itself. It starts a cluster of its own on this machine.


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model("tiny", EngineConfig(device="cpu"))


@contextmanager
def noisy_ray() -> Iterator[None]:
    """Ray warns of its own future, and leaves processes and sockets to the garbage collector."""
    with warnings.catch_warnings():
        for category in (FutureWarning, DeprecationWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        try:
            yield
        finally:
            gc.collect()


@pytest.fixture(scope="module")
def group(loaded: LoadedModel) -> Iterator[RayWorkers]:
    spec = WorkerSpec("tiny", loaded.fingerprint, num_workers=2, device="cpu", threads=1, backoff_s=0.1)
    with noisy_ray():
        group = RayWorkers(spec, init={"object_store_memory": 100 << 20, "num_cpus": 2})
    yield group
    with noisy_ray():
        group.close()


class Kept:
    """A pool that its engine does not close."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def close(self) -> None:
        pass


def finish(pool: WorkerPool, count: int, timeout_s: float = 120.0) -> list[Built]:
    built: list[Built] = []
    until = time.monotonic() + timeout_s
    while len(built) < count and time.monotonic() < until:
        pool.wait(0.2)
        built += pool.poll()
    return sorted(built, key=lambda one: one.job.id)


def assert_equal(found: Any, wanted: Any) -> None:
    for one, other in zip(found.layers, wanted.layers, strict=True):
        for name in ("transition", "end_state", "conv_tail", "keys", "values"):
            if getattr(one, name, None) is not None:
                torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_ray_builds_what_is_built_here_also_when_an_actor_dies_meanwhile(
    loaded: LoadedModel, group: RayWorkers
) -> None:
    local = LocalPool(loaded.model, 4096)
    pool = WorkerPool(group, local, Limits(), hop_s=0.0)
    assert pool.warm_up(180) == 2
    short = [BuildJob(i, tuple((7 * i + k) % 200 for k in range(40 + 20 * i)), 8, 8, hold=f"h{i}") for i in range(1, 5)]
    pool.submit(short)
    first = finish(pool, 4)
    assert [one.place for one in first] == ["worker"] * 4
    pool.submit([BuildJob(10 + j.id, j.token_ids, j.head, j.map_from, hold=j.hold) for j in short])
    again = finish(pool, 4)
    assert group.fetched == 4
    for one, other, want in zip(first, again, local.compute(short), strict=True):
        match = next(w for w in [want, *local.compute([one.job])] if w.job is one.job)
        assert_equal(one.payload, match.payload)
        assert_equal(other.payload, match.payload)

    prompt = Prompts(Shape(3, 60, question_len=8), loaded.model.vocab_size, 0).shuffled()
    tokenizer = ChatTokenizer.from_pretrained(loaded.tokenizer_path)
    given = (loaded.model, tokenizer, loaded.fingerprint, EngineConfig())
    with Engine(*given, name="tiny") as here, Engine(*given, name="tiny", pool=Kept(pool)) as there:
        wanted, found = (engine.generate(prompt, SamplingParams(max_tokens=8)) for engine in (here, there))
    assert found.token_ids == wanted.token_ids
    assert found.report.builds.workers == 4 and found.report.builds.problems == ()

    long = [BuildJob(20 + i, tuple((3 * i + k) % 200 for k in range(1500)), 8, 8) for i in range(3)]
    pool.submit(long)
    pool.poll()
    group._ray.kill(group._actors[0]._handle)
    built = finish(pool, 3)
    assert [one.error for one in built] == [None] * 3
    assert sum(one.retries for one in built) == 1
    assert any("worker 0 was lost" in problem for one in built for problem in one.problems)
    for one in built:
        assert_equal(one.payload, local.compute([one.job])[0].payload)
    assert pool.warm_up(180) == 2
