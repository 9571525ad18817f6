"""Which actor a payload is fetched from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hypic_agents.runtime.workers.contract import BuildJob
from hypic_agents.runtime.workers.ray_holders import RayHolders


def job(hold: str) -> BuildJob:
    return BuildJob(1, (1, 2), 0, 0, hold=hold)


def actor(state: str = "idle") -> Any:
    return SimpleNamespace(state=state)


@pytest.mark.parametrize(("state", "is_asked"), [("idle", True), ("busy", True), ("resting", False), ("gone", False)])
def test_only_an_actor_that_runs_is_asked(state: str, is_asked: bool) -> None:
    holders, holder = RayHolders(), actor(state)
    holders.note(job("a"), holder)
    assert holders.find(job("a")) is (holder if is_asked else None)


def test_a_job_without_a_name_is_held_by_nobody() -> None:
    holders = RayHolders()
    holders.note(job(""), actor())
    assert holders.find(job("")) is None


def test_what_is_forgotten_or_lost_is_not_found() -> None:
    holders, first, second = RayHolders(), actor(), actor()
    for name, holder in (("a", first), ("b", second), ("c", second), ("d", second)):
        holders.note(job(name), holder)
    holders.forget(job("b"))
    holders.forget(job("never noted"))
    holders.drop(first)
    assert [holders.find(job(name)) for name in "abcd"] == [None, None, second, second]
    holders.clear()
    assert holders.find(job("c")) is None


def test_the_names_noted_last_are_kept() -> None:
    holders, holder = RayHolders(capacity=2), actor()
    for name in ("a", "b", "a", "c"):
        holders.note(job(name), holder)
    assert [holders.find(job(name)) for name in "abc"] == [holder, None, holder]
