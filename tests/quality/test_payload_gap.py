"""Compact payloads against plain ones on the same questions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.payload_gap import payload_gap
from hypic_agents.runtime.compact import Compaction
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine

HARSH = Compaction("int8", drop_below=1e9)


def quiet(_stage: str, done: int, total: int) -> None:
    assert 0 <= done <= total


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    # Alone and without seams, so that what crosses segments is in the transitions.
    with Engine.load("tiny", EngineConfig(threads=1, policy="hypic:lead_max=0,condition_on_system=false")) as loaded:
        yield loaded


def test_rounding_changes_little_and_dropping_all_transitions_much(engine: Engine) -> None:
    kinds = [Compaction(), Compaction("int8", low_rank_within=0.03), HARSH]
    same, gentle, harsh = payload_gap(
        engine, kinds, questions_per_task=6, tasks=("single", "override"), seed=1, progress=quiet
    )
    assert (same["gap_change"], same["to_wrong"], same["to_right"]) == (0, 0, 0)
    assert same["kl_compact"] == same["kl_plain"]
    assert same["gap_change_low"] < 0 < same["gap_change_high"]
    assert same["questions"] == 12
    assert abs(gentle["kl_compact"] - gentle["kl_plain"]) < 0.01
    assert harsh["kl_compact"] > 2 * harsh["kl_plain"]
    for row in (same, gentle, harsh):
        assert row["gap_plain"] + row["gap_change"] == pytest.approx(row["gap_compact"])
        assert row["gap_change"] == pytest.approx(100 * (row["to_wrong"] - row["to_right"]) / 12)
    assert engine.stats().entries == 0


def test_questions_are_needed(engine: Engine) -> None:
    with pytest.raises(InvalidInput, match="questions_per_task=0"):
        payload_gap(engine, [Compaction("int8")], questions_per_task=0, progress=quiet)
    with pytest.raises(InvalidInput, match="unknown task 'x'"):
        payload_gap(engine, [Compaction("int8")], questions_per_task=1, tasks=("x",), progress=quiet)
