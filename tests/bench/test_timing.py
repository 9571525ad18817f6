from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.bench.timing import Timings, interleave


def test_modes_take_turns_and_warming_up_is_not_counted() -> None:
    calls: list[tuple[str, int]] = []
    modes = {name: lambda repeat, name=name: calls.append((name, repeat)) for name in "abc"}
    timings = interleave(modes, repeats=2, warmup=1)
    assert [repeat for _, repeat in calls] == [-1] * 3 + [0] * 3 + [1] * 3
    assert ["".join(name for name, at in calls if at == repeat) for repeat in (-1, 0, 1)] == ["cab", "abc", "bca"]
    assert {name: len(t.seconds) for name, t in timings.items()} == {"a": 2, "b": 2, "c": 2}


def test_the_collector_is_back_after_an_error() -> None:
    def fail(_: int) -> None:
        assert not gc.isenabled()
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        interleave({"a": fail}, repeats=1)
    assert gc.isenabled()


def test_progress_tells_every_repeat() -> None:
    told: list[tuple[str, int, int]] = []
    interleave({"a": lambda _: None}, repeats=2, progress=lambda *stage: told.append(stage), stage="timing")
    assert told == [("timing", 1, 3), ("timing", 2, 3), ("timing", 3, 3)]


@given(st.lists(st.floats(0, 1e3), min_size=1))
def test_the_median_lies_in_the_spread(seconds: list[float]) -> None:
    timings = Timings(tuple(seconds))
    low, high = timings.spread
    assert low <= timings.median <= high
    assert (low, high) == (min(seconds), max(seconds))


def test_a_known_median() -> None:
    assert Timings((3.0, 1.0, 2.0, 10.0)).median == 2.5
