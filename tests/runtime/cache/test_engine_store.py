"""Engines over a directory: a restart hits at once and answers the same, whatever happened to the files."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
import torch

from hypic_agents.core import Prompt, SamplingParams, Scope
from hypic_agents.errors import InvalidInput, StoreUnavailable
from hypic_agents.runtime.cache.base import SegmentStore
from hypic_agents.runtime.cache.bucket import open_bucket
from hypic_agents.runtime.cache.disk import DiskTier
from hypic_agents.runtime.cache.memory import MemoryStore
from hypic_agents.runtime.cache.remote import RemoteTier
from hypic_agents.runtime.cache.remote_store import RemoteStore
from hypic_agents.runtime.cache.tiered import TieredStore
from hypic_agents.runtime.compact import CompactingStore, Compaction
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.payload_codec import SegmentCodec
from tests.runtime.models import engine, make_prompt, segment_ids

GREEDY = SamplingParams(max_tokens=6)


def prompt(seed: int, *, scope: Scope | None = None, order: tuple[int, ...] = (0, 1, 2)) -> Prompt:
    rng = random.Random(seed)
    system = segment_ids(rng, 20)
    parts = [segment_ids(rng, 40) for _ in order]
    return make_prompt([parts[i] for i in order], system=system, scope=scope)


def test_a_restart_hits_at_once_and_answers_the_same(tmp_path: Path) -> None:
    with engine(store_dir=str(tmp_path)) as first:
        cold = first.generate(prompt(1), GREEDY)
        expected = first.score([prompt(1)], [cold.token_ids])[0]
    with engine(store_dir=str(tmp_path)) as second:
        warm = second.generate(prompt(1), GREEDY)
        assert torch.equal(second.score([prompt(1)], [cold.token_ids])[0], expected)
        shuffled = second.generate(prompt(1, order=(2, 0, 1)), GREEDY)
    assert warm.token_ids == cold.token_ids
    assert cold.report.cold_tokens == warm.report.reused_tokens > 0
    assert (warm.report.cold_tokens, shuffled.report.cold_tokens) == (0, 0)


def test_two_engines_share_a_directory_while_both_run(tmp_path: Path) -> None:
    with engine(store_dir=str(tmp_path)) as one, engine(store_dir=str(tmp_path)) as two:
        expected = one.generate(prompt(1), GREEDY)
        one.store.flush()
        found = two.generate(prompt(1), GREEDY)
        assert (found.token_ids, found.report.cold_tokens) == (expected.token_ids, 0)
        assert one.invalidate(tenant="default") > 0
        assert two.generate(prompt(1), GREEDY).report.reused_tokens == 0


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("kind", ["memory", "directory", "remote"])
def test_checkpoints_compare_versions_as_the_store_does(tmp_path: Path, kind: str, rounded: bool) -> None:
    store: SegmentStore
    store = local = MemoryStore(1 << 30, version_order=int)
    codec = SegmentCodec(torch.device("cpu"))
    if kind == "directory":
        store = TieredStore(local, DiskTier(tmp_path, 1 << 30, codec, version_order=int), version_order=int)
    elif kind == "remote":
        bucket = open_bucket(f"file://{tmp_path}")
        store = RemoteStore(local, RemoteTier(bucket, codec, version_order=int), version_order=int)
    if rounded:
        store = CompactingStore(store, Compaction("bfloat16"))
    plain = engine()
    one = Engine(plain.model, plain.tokenizer, "m", EngineConfig(), store)
    asked = prompt(1)
    spans = tuple(replace(s, segment=replace(s.segment, source_id="doc", version="9")) for s in asked.spans)
    asked = replace(asked, spans=spans, scope=spans[0].segment.scope)
    done = one.generate(asked, GREEDY)
    longer = replace(asked, token_ids=(*asked.token_ids, *done.token_ids, 9, 10, 11))
    one.invalidate(source_id="doc", version_before="9")
    assert one.generate(longer, GREEDY).report.prefix_tokens > 0
    one.invalidate(source_id="doc", version_before="10")
    assert one.generate(longer, GREEDY).report.prefix_tokens == 0
    store.close()


def test_damage_costs_a_build_and_nothing_else(tmp_path: Path) -> None:
    with engine(store_dir=str(tmp_path)) as first:
        expected = first.generate(prompt(1), GREEDY).token_ids
    for path in (tmp_path / "segments").iterdir():
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)
    with engine(store_dir=str(tmp_path)) as second:
        again = second.generate(prompt(1), GREEDY)
        assert again.token_ids == expected
        assert again.report.reused_tokens == 0
        assert second.stats().damaged == 4


def test_tenants_share_no_file(tmp_path: Path) -> None:
    with engine(store_dir=str(tmp_path)) as one:
        one.generate(prompt(1, scope=Scope("a")), GREEDY)
    with engine(store_dir=str(tmp_path)) as two:
        report = two.generate(prompt(1, scope=Scope("b")), GREEDY).report
        assert report.reused_tokens == 0
        assert two.invalidate(tenant="a") > 0
        assert two.generate(prompt(1, scope=Scope("b")), GREEDY).report.cold_tokens == 0


def test_interleaved_tenants_in_threads_share_nothing(tmp_path: Path) -> None:
    """The same texts from two tenants at once: as many builds each as one tenant alone needs."""
    with engine(store_dir=str(tmp_path)) as one:
        reports: dict[str, list[int]] = {"a": [], "b": []}

        def ask(tenant: str) -> None:
            for seed in (1, 1, 2):
                answer = one.generate(prompt(seed, scope=Scope(tenant)), SamplingParams(max_tokens=1))
                reports[tenant].append(answer.report.cold_tokens)

        threads = [Thread(target=ask, args=(tenant,)) for tenant in reports]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        one.store.flush()
        one.store.check_integrity()
        first, second, third = reports["a"]
        assert reports["a"] == reports["b"]
        assert first > 0 == second
        assert third > 0
        assert one.stats().pinned == 0


@pytest.mark.slow
def test_a_thousand_requests_of_two_tenants_in_threads_share_nothing(tmp_path: Path) -> None:
    with engine(store_dir=str(tmp_path), max_batch=4) as one:
        cold: dict[str, list[int]] = {"a": [], "b": []}

        def ask(tenant: str, seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(250):
                text = rng.randrange(8)
                answer = one.generate(prompt(text, scope=Scope(tenant)), SamplingParams(max_tokens=1))
                cold[tenant].append(answer.report.cold_tokens)

        threads = [Thread(target=ask, args=(tenant, seed)) for tenant in cold for seed in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)
        one.store.flush()
        one.store.check_integrity()
        assert one.stats().pinned == 0
        # Each tenant builds every text itself, once: what the other has built saves it nothing.
        assert sum(cold["a"]) == sum(cold["b"]) > 0
        assert one.invalidate(tenant="a") == one.stats().disk_entries
        assert one.generate(prompt(1, scope=Scope("b")), GREEDY).report.cold_tokens == 0
        assert one.generate(prompt(1, scope=Scope("a")), GREEDY).report.reused_tokens == 0


@pytest.mark.parametrize("numbers", ["bfloat16", "int8"])
def test_rounded_payloads_answer_the_same_cold_and_warm(tmp_path: Path, numbers: str) -> None:
    config = {"store_dir": str(tmp_path), "state_numbers": numbers, "drop_transition_below": 0.5}
    with engine(**config) as first:
        cold = first.generate(prompt(1), GREEDY)
        first.store.check_integrity()
    with engine(**config) as second:
        warm = second.generate(prompt(1), GREEDY)
        rounded = second.score([prompt(1)], [cold.token_ids])[0]
    with engine(store_dir=str(tmp_path)) as exact:
        other = exact.generate(prompt(1), GREEDY)
        plain = exact.score([prompt(1)], [cold.token_ids])[0]
    with engine(**(config | {"store_dir": None})) as in_memory:
        in_memory.generate(prompt(1), GREEDY)
        assert torch.equal(in_memory.score([prompt(1)], [cold.token_ids])[0], rounded)
    assert (cold.token_ids, warm.report.cold_tokens) == (warm.token_ids, 0)
    assert other.report.reused_tokens < warm.report.reused_tokens  # only the checkpoint is the same
    assert not torch.equal(rounded, plain)
    torch.testing.assert_close(rounded, plain, atol=0.2, rtol=0.1)


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="eviction='fifo'"):
        engine(eviction="fifo")
    with pytest.raises(InvalidInput, match="disk_bytes=-1"):
        engine(disk_bytes=-1)
    with pytest.raises(InvalidInput, match="state_numbers='int4'"):
        engine(state_numbers="int4")
    with pytest.raises(InvalidInput, match="drop_transition_below=-1"):
        engine(drop_transition_below=-1)
    with pytest.raises(InvalidInput, match="exclude each other"):
        engine(drop_transition_below=0.1, audit_share=0.5)
    with pytest.raises(InvalidInput, match="store_url='bucket': use a URL"):
        engine(store_url="bucket")
    with pytest.raises(InvalidInput, match="store_timeout_s=0"):
        engine(store_timeout_s=0)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable, match="cannot use"):
        engine(store_dir=str(tmp_path / "file"))


@pytest.mark.parametrize("with_disk", [False, True])
def test_engines_on_two_machines_share_a_remote_place(tmp_path: Path, with_disk: bool) -> None:
    def machine(name: str) -> dict[str, object]:
        disk = {"store_dir": str(tmp_path / name)} if with_disk else {}
        return disk | {"store_url": f"memory://{tmp_path.name}-{with_disk}"}

    with engine(**machine("one")) as one, engine(**machine("two")) as two:
        cold = one.generate(prompt(1), GREEDY)
        expected = one.score([prompt(1)], [cold.token_ids])[0]
        one.store.flush()
        warm = two.generate(prompt(1, order=(2, 0, 1)), GREEDY)
        assert warm.report.reused_tokens > 0
        assert two.stats().remote_hits == 3  # the checkpoint before the segments is not worth a transfer
        assert torch.equal(two.score([prompt(1)], [cold.token_ids])[0], expected)
        assert one.invalidate(tenant="default") > 0
        with engine(**machine("three")) as three:
            assert three.generate(prompt(1), GREEDY).report.reused_tokens == 0
            assert three.stats().remote_hits == 0
        two.store.check_integrity()


def test_compact_payloads_travel_as_they_are(tmp_path: Path) -> None:
    config = {"store_url": f"file://{tmp_path}/shared", "state_numbers": "int8"}
    with engine(**config) as one:
        cold = one.generate(prompt(1), GREEDY)
        expected = one.score([prompt(1)], [cold.token_ids])[0]
    with engine(**config) as two:
        assert torch.equal(two.score([prompt(1)], [cold.token_ids])[0], expected)
        assert two.stats().remote_hits == 3
    with engine(store_url=f"file://{tmp_path}/shared") as exact:
        exact.generate(prompt(1), GREEDY)
        assert exact.stats().remote_hits == 0


def test_revoking_a_group_takes_effect_before_the_call_returns(tmp_path: Path) -> None:
    scope = Scope("a", frozenset({"staff", "contractors"}))
    place = f"memory://{tmp_path.name}-groups"
    with (
        engine(store_dir=str(tmp_path), store_url=place) as one,
        engine(store_dir=str(tmp_path), store_url=place) as two,
    ):
        for each in (one, two):
            each.generate(prompt(1, scope=scope), GREEDY)
            each.store.flush()
        one.generate(prompt(1, scope=Scope("a")), GREEDY)
        assert one.invalidate(group="contractors") > 0
        for each in (one, two):
            assert each.plan(prompt(1, scope=scope)).builds
            report = each.generate(prompt(1, scope=scope), GREEDY).report
            assert report.cold_tokens > 0
            one.invalidate(group="contractors")
        assert one.generate(prompt(1, scope=Scope("a")), GREEDY).report.cold_tokens == 0


@pytest.mark.parametrize("policy", ["hypic", "prefix"])
def test_law_6_what_stands_before_a_text_counts_among_what_shaped_its_entry(policy: str) -> None:
    acme, hr = Scope("acme"), Scope("acme", frozenset({"hr"}))

    def behind(scope: Scope) -> Prompt:
        one = prompt(1, scope=acme)
        first = one.spans[0]
        return replace(one, spans=(replace(first, segment=replace(first.segment, scope=scope)), *one.spans[1:]))

    with engine() as one:
        expected = one.generate(behind(hr), GREEDY, policy)
        assert one.generate(behind(hr), GREEDY, policy).report.reused_tokens > 0
        other = one.generate(behind(acme), GREEDY, policy)
        assert (other.report.reused_tokens, other.token_ids) == (0, expected.token_ids)
        one.invalidate(group="hr")
        again = one.generate(behind(hr), GREEDY, policy)
        assert (again.report.reused_tokens, again.token_ids) == (0, expected.token_ids)
        assert one.generate(behind(acme), GREEDY, policy).report.reused_tokens > 0
