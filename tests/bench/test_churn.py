"""The churn benchmark: its trace, its bound, and what it would notice."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypic_agents.bench import churn
from hypic_agents.bench.churn_trace import Access, Sizes, make_trace, offline_hits
from hypic_agents.errors import HypicError, InvalidInput
from hypic_agents.runtime.cache.invalidation import Invalidation
from hypic_agents.runtime.cache.memory import MemoryStore


def quiet(stage: str, done: int, total: int) -> None:
    assert 0 < done <= total


def test_the_trace_is_what_was_asked_for() -> None:
    trace = make_trace(requests=3000, documents=50, one_off_share=0.1, update_share=0.1, skew=1.0, seed=1)
    again = make_trace(requests=3000, documents=50, one_off_share=0.1, update_share=0.1, skew=1.0, seed=1)
    assert trace == again
    one_offs = [access.document for access in trace.accesses if access.document >= 50]
    assert len(one_offs) == len(set(one_offs)) == pytest.approx(300, rel=0.2)
    assert sum(len(access.updated) for access in trace.accesses) == pytest.approx(300, rel=0.2)
    uses = [sum(access.document == i for access in trace.accesses) for i in range(50)]
    assert uses[0] == pytest.approx(2 * uses[1], rel=0.3)
    current = dict.fromkeys(range(50), 0)
    for access in trace.accesses:
        for document in access.updated:
            current[document] += 1
        assert access.version == current.get(access.document, 0)
        assert 128 <= access.tokens <= 4096


@pytest.mark.parametrize(
    "bad", [{"requests": 0}, {"documents": 0}, {"one_off_share": 1.5}, {"update_share": -0.1}, {"budget_share": 0.0}]
)
def test_settings_that_make_no_trace(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bad)).split("_")[0]):
        churn.run(progress=quiet, **bad)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.integers(1, 3))
def test_the_bound_is_the_optimum_where_sizes_are_equal(documents: list[int], room: int) -> None:
    accesses = [Access(document, 0, 1) for document in documents]
    hits = sum(offline_hits(accesses, [1] * len(accesses), room))
    assert hits == best(documents, room)


def best(documents: list[int], room: int) -> int:
    """The most hits that any choice of what to keep gives, by trying all of them."""
    states = {frozenset[int](): 0}
    for document in documents:
        following: dict[frozenset[int], int] = {}
        for kept, hits in states.items():
            now = hits + (document in kept)
            pool = sorted(kept | {document})
            for mask in product([False, True], repeat=len(pool)):
                chosen = frozenset(each for each, keep in zip(pool, mask, strict=True) if keep)
                if len(chosen) <= room:
                    following[chosen] = max(following.get(chosen, 0), now)
        states = following
    return max(states.values())


def test_figures_of_a_small_run() -> None:
    result = churn.run(progress=quiet, requests=400, documents=60, update_share=0.05)
    assert json.loads(json.dumps(result)) == result
    rows = {row["policy"]: row for row in result["rows"]}
    optimum = rows["optimum (greedy Belady by bytes)"]["hit_rate"]
    for name, row in rows.items():
        assert 0 < row["hit_rate"] <= optimum, name
        assert row["peak_bytes"] <= result["budget_bytes"]
    assert rows["gdsf, second touch"]["hit_rate"] > rows["lru"]["hit_rate"]
    assert result["hit_rate_vs_optimum"] == pytest.approx(result["hit_rate"] / optimum)
    assert result["stale_probes"] >= result["updates"] > 5
    total = {row["bytes_read"] + row["bytes_built"] for row in rows.values()}
    assert len(total) == 1


def test_a_store_that_forgets_to_invalidate_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: MemoryStore, call: Invalidation) -> int:
        return 0

    monkeypatch.setattr(MemoryStore, "withdraw", nothing)
    with pytest.raises(HypicError, match="is served after version"):
        churn.run(progress=quiet, requests=300, documents=20, update_share=0.2)


def test_a_store_over_its_budget_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "_admit", lambda self, entry, since, *, seen: True)
    with pytest.raises(HypicError, match="a budget is exceeded"):
        churn.run(progress=quiet, requests=300, documents=20)


def test_sizes_follow_length() -> None:
    sizes = Sizes(fixed_bytes=10, token_bytes=2, token_s=1.0, pair_s=0.5)
    assert (sizes.nbytes(3), sizes.build_s(2)) == (16, 4.0)
