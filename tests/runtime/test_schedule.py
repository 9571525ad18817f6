"""Who is admitted, who waits for entries, who runs."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.runtime.schedule import Schedule


@dataclass(eq=False)
class One:
    name: int
    done: bool = False


def schedule(
    max_batch: int = 4, max_pass_tokens: int = 100, sizes: tuple[int, ...] = ()
) -> tuple[Schedule[One], list[One]]:
    made: Schedule[One] = Schedule(max_batch, max_pass_tokens)
    requests = [One(i) for i in range(len(sizes))]
    for request, size in zip(requests, sizes, strict=True):
        made.add(request, size)
    return made, requests


def test_a_request_that_is_ready_overtakes_one_that_is_built() -> None:
    made, (a, b, c) = schedule(sizes=(10, 10, 10))
    assert made.admit() == [a, b, c]
    assert made.take(lambda r: r is not a) == [b, c]
    assert made.running == [b, c]
    assert not made.idle
    assert made.take(lambda r: False) == []
    assert made.take(lambda r: True) == [a]


def test_those_that_are_built_take_a_place_in_the_batch() -> None:
    made, (a, b, c) = schedule(max_batch=2, sizes=(10, 10, 10))
    assert made.admit() == [a, b]
    assert made.admit() == []
    a.done = True
    assert made.retire() == [a]
    assert made.admit() == [c]


def test_a_pass_keeps_to_its_tokens() -> None:
    made, (a, b, c) = schedule(sizes=(150, 60, 60))
    assert made.admit() == [a]
    assert made.admit() == [b]
    assert made.admit() == [c]
    assert made.take(lambda r: True) == [a]
    assert made.take(lambda r: True) == [b]
    assert made.take(lambda r: True) == [c]


def test_a_request_that_fails_while_it_is_looked_at_does_not_run() -> None:
    made, (a,) = schedule(sizes=(10,))
    made.admit()

    def fails(request: One) -> bool:
        request.done = True
        return True

    assert made.take(fails) == []
    assert made.retire() == [a]
    assert made.idle


@given(st.lists(st.tuples(st.integers(1, 80), st.integers(0, 5)), max_size=20), st.integers(1, 4))
def test_each_request_runs_once_in_the_end(given_: list[tuple[int, int]], max_batch: int) -> None:
    made, requests = schedule(max_batch, 100, tuple(size for size, _ in given_))
    ready_at = {r.name: delay for r, (_, delay) in zip(requests, given_, strict=True)}
    ran: list[One] = []
    for now in range(200):
        made.admit()
        taken = made.take(lambda r, now=now: ready_at[r.name] <= now)
        assert len(made.running) + len(made.building) <= max_batch
        assert len(taken) <= 1 or sum(given_[r.name][0] for r in taken) <= 100
        ran += taken
        for request in taken:
            request.done = True
        made.retire()
    assert sorted(r.name for r in ran) == list(range(len(requests)))
    assert made.idle
