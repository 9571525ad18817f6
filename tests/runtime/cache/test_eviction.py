"""Rules of eviction and admission, without a store."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.admission import Admission, TouchHistory
from hypic_agents.runtime.cache.eviction import GDSF, LRU, Eviction, EvictionQueue, Worth, eviction_rule
from hypic_agents.runtime.cache.key import build_recipe
from hypic_agents.runtime.cache.memory import MemoryStore
from tests.runtime.cache.blobs import make

TOUCHES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 9), st.floats(0.001, 10), st.integers(0, 1000)), max_size=60
)


def drain(queue: EvictionQueue[int]) -> list[int]:
    return [queue.pop() for _ in range(len(queue))]


@given(TOUCHES)
def test_lru_orders_by_last_touch(touches: list[tuple[int, int, float, int]]) -> None:
    queue: EvictionQueue[int] = EvictionQueue(LRU())
    for key, *worth in touches:
        queue.touch(key, Worth(*worth))
    last = {key: at for at, (key, *_) in enumerate(touches)}
    assert drain(queue) == sorted(last, key=last.__getitem__)


@given(TOUCHES)
def test_gdsf_orders_by_saved_work_a_byte(touches: list[tuple[int, int, float, int]]) -> None:
    queue: EvictionQueue[int] = EvictionQueue(GDSF())
    last: dict[int, tuple[float, int]] = {}
    for at, (key, *worth) in enumerate(touches):
        queue.touch(key, Worth(*worth))
        last[key] = (worth[0] * worth[1] / max(1, worth[2]), at)
    assert drain(queue) == sorted(last, key=last.__getitem__)


def test_gdsf_forgets_old_fame() -> None:
    queue: EvictionQueue[str] = EvictionQueue(GDSF())
    queue.touch("famous", Worth(5, 1.0, 1))
    for i in range(5):
        queue.touch(f"new {i}", Worth(1, 1.0, 1))
        if i < 4:
            assert queue.pop() == f"new {i}"
    queue.touch("newer", Worth(2, 1.0, 1))
    assert queue.pop() == "famous"


@pytest.mark.parametrize("rule", [LRU(), GDSF()], ids=lambda rule: rule.name)
def test_removed_keys_do_not_come_back(rule: Eviction) -> None:
    queue: EvictionQueue[int] = EvictionQueue(rule)
    for key in [1, 2, 3, 2] * 60:
        queue.touch(key, Worth(1, 1.0, 1))
    queue.remove(2)
    assert (len(queue), set(queue)) == (2, {1, 3})
    assert drain(queue) == [1, 3]
    with pytest.raises(KeyError, match="nothing to evict"):
        queue.pop()


def test_an_untimed_build_is_worth_its_tokens() -> None:
    assert Worth.of(1, 0.0, 2000, 5).build_s == pytest.approx(2 * Worth.of(1, 0.0, 1000, 5).build_s)
    assert Worth.of(1, 3.0, 2000, 5).build_s == 3.0


def test_rules_have_names() -> None:
    assert isinstance(eviction_rule("lru"), LRU)
    assert isinstance(eviction_rule("gdsf"), GDSF)
    with pytest.raises(InvalidInput, match="eviction='fifo': use lru or gdsf"):
        eviction_rule("fifo")


@pytest.mark.parametrize(
    ("admission", "changes", "refusal"),
    [
        (Admission(), {}, ""),
        (Admission(), {"must_evict": True}, ""),
        (Admission(second_touch=True), {}, ""),
        (Admission(second_touch=True), {"must_evict": True}, "not seen before"),
        (Admission(second_touch=True), {"must_evict": True, "seen": True}, ""),
        (Admission(min_tokens=10), {"num_tokens": 9}, "shorter than 10 tokens"),
        (Admission(min_tokens=10), {}, ""),
        (Admission(max_share=0.5), {"nbytes": 51}, "larger than 50% of the budget"),
        (Admission(max_share=0.5), {"nbytes": 50}, ""),
    ],
)
def test_admission(admission: Admission, changes: dict[str, object], refusal: str) -> None:
    case = {"num_tokens": 10, "nbytes": 10, "budget_bytes": 100, "seen": False, "must_evict": False} | changes
    assert admission.refusal(**case) == refusal  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [{"min_tokens": -1}, {"max_share": 0.0}, {"max_share": 1.1}])
def test_admission_checks_itself(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        Admission(**bad)  # type: ignore[arg-type]


def test_history_counts_ages_and_forgets() -> None:
    history: TouchHistory[int] = TouchHistory(capacity=2)
    assert [history.touch(1), history.touch(1), history.touch(2)] == [1, 2, 1]
    history.touch(3)
    assert (history[1], history[2], history[3], len(history)) == (0, 1, 1, 2)
    for _ in range(20):
        history.touch(3)
    assert history[3] < 20
    assert history[2] == 0


def test_one_off_segments_do_not_flush_hot_ones() -> None:
    store = MemoryStore(300, eviction=GDSF(), admission=Admission(second_touch=True))
    hot = [make(i) for i in range(3)]
    for entry in hot:
        store.insert(entry)
    for token in range(10, 60):
        store.insert(make(token))
    assert store.stats().evictions == 0
    again = make(100)
    store.insert(again)
    assert store.acquire(again.key, again.token_ids) is None
    store.insert(again)
    assert store.stats().evictions == 1
    store.check_integrity()


def test_a_checkpoint_is_kept_at_its_first_touch() -> None:
    """Each turn of a chat makes a checkpoint that the next turn needs once."""
    store = MemoryStore(300, eviction=GDSF(), admission=Admission(second_touch=True))
    for token in range(3):
        store.insert(make(token))
    one = make(9)
    turn = replace(one, key=replace(one.key, recipe=build_recipe(kind="prefix")))
    store.insert(turn)
    assert store.acquire(turn.key, turn.token_ids) is turn


def test_dear_segments_outlast_cheap_ones_of_the_same_size() -> None:
    store = MemoryStore(200, eviction=GDSF())
    dear, cheap = make(1, build_s=1.0), make(2, build_s=0.1)
    store.insert(dear)
    store.insert(cheap)
    store.insert(make(3, build_s=0.5))
    assert store.acquire(dear.key, dear.token_ids) is dear
    assert store.acquire(cheap.key, cheap.token_ids) is None
