"""Score against live tokens: the front, and what is said of 15 %."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.evaluate import run_eval
from hypic_agents.quality.pareto import SEAM_ONLY, pareto, repair_of
from hypic_agents.quality.picture import draw_pareto
from hypic_agents.quality.policies import pareto_policies
from hypic_agents.runtime.config import EngineConfig, parse_policy
from hypic_agents.runtime.engine import Engine

ALONE = "hypic:condition_on_system=false,lead_max=0,head_seam="


def result_of(*rows: tuple[str, float, float]) -> dict[str, Any]:
    """``rows``: policy, live share, score; full recompute scores 0.9."""
    return {
        "mean": {
            policy: {
                "live_share": live,
                "score": score,
                "gap_points": 90 - 100 * score,
                "gap_ci95": [89 - 100 * score, 92 - 100 * score],
                "kl": 1 - score,
            }
            for policy, live, score in (("exact", 1.0, 0.9), *rows)
        },
        "questions": 100,
    }


def test_the_front_is_what_nothing_beats_in_both() -> None:
    made = pareto(result_of((f"{ALONE}8", 0.12, 0.7), (f"{ALONE}16", 0.2, 0.7), ("hypic", 0.12, 0.8)))
    assert made["front"] == ["hypic", "exact"]
    assert [point["live_share"] for point in made["points"]] == [0.12, 0.12, 0.2, 1.0]
    assert [point["on_front"] for point in made["points"]] == [True, False, False, True]
    assert len({tuple(point) for point in made["points"]}) == 1, "rows of a table share their columns"


def test_equal_points_are_both_on_the_front() -> None:
    assert pareto(result_of(("hypic", 0.1, 0.8), ("addition", 0.1, 0.8)))["front"] == ["hypic", "addition", "exact"]


def test_seams_alone_are_interpolated_at_15_percent() -> None:
    made = pareto(
        result_of(
            (f"{ALONE}16", 0.2, 0.8),
            (f"{ALONE}8", 0.12, 0.72),
            ("hypic", 0.14, 0.86),
            ("hypic:head_seam=16", 0.16, 0.9),
        )
    )
    at = made["at_15_percent"]
    assert at["seam_only_between"] == [f"{ALONE}8", f"{ALONE}16"]
    assert at["seam_only_gap"] == pytest.approx(18 - 3 / 8 * 8)
    assert at["best_policy"] == "hypic", "the other costs more than 15 %"
    assert at["best_gap"] == pytest.approx(4)
    assert at["best_gap_ci95"] == pytest.approx([3, 6])
    assert at["ratio"] == pytest.approx(4 / 15)


@pytest.mark.parametrize("lives", [(0.02, 0.1), (0.3, 0.16)])
def test_the_nearest_point_stands_in_where_none_lies_beyond(lives: tuple[float, float]) -> None:
    rows = [(f"{ALONE}{i}", live, 0.8) for i, live in enumerate(lives)]
    at = pareto(result_of(*rows, ("hypic", 0.05, 0.85)))["at_15_percent"]
    assert at["seam_only_between"] == [f"{ALONE}1"]
    assert at["seam_only_gap"] == pytest.approx(10)


def test_nothing_is_claimed_without_a_gap_or_without_both_sides() -> None:
    assert pareto(result_of((f"{ALONE}8", 0.12, 0.9), ("hypic", 0.1, 0.9)))["at_15_percent"]["ratio"] is None
    assert pareto(result_of(("hypic", 0.1, 0.9)))["at_15_percent"] is None
    assert pareto(result_of((f"{ALONE}8", 0.4, 0.9)))["at_15_percent"] is None


def test_repairs_have_names() -> None:
    named = {
        "exact": "full recompute",
        f"{ALONE}8": SEAM_ONLY,
        "hypic": "built behind system prompt and lead",
        "hypic:lead_max=0": "built behind system prompt",
        "hypic:lead_max=0,recompute_pointed=0.1": "built behind system prompt, pointed parts live",
    }
    assert {spec: repair_of(parse_policy(spec)) for spec in named} == named


def test_the_family_is_small_and_asks_for_seams_on_both_sides_of_15_percent() -> None:
    specs = pareto_policies()
    assert specs[0] == "exact"
    assert len(specs) == len(set(specs)) <= 15
    policies = [parse_policy(spec) for spec in specs]
    assert {policy.head_seam for policy in policies if repair_of(policy) == SEAM_ONLY} >= {8, 16}
    assert "hypic" in specs, "its behaviour is what an evaluation checks first"


def test_an_evaluation_becomes_a_picture(tmp_path: Path) -> None:
    presets = ("exact", f"{ALONE}3", f"{ALONE}16", "hypic:head_seam=3,lead_max=32,recompute_pointed=0.05,piece_len=32")

    def quiet(_stage: str, _done: int, _total: int) -> None:
        pass

    with Engine.load("random:qwen3_5:2m", EngineConfig(threads=1)) as engine:
        result = run_eval(engine, questions_per_task=2, presets=presets, tasks=("single",), progress=quiet)
    result["pareto"] = pareto(result)
    assert {point["policy"] for point in result["pareto"]["points"]} == set(presets)
    assert result["cold_equals_warm"] is True
    draw_pareto(result, tmp_path / "pareto.png", title="random")
    assert (tmp_path / "pareto.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match="cannot save"):
        draw_pareto(result, tmp_path / "missing" / "pareto.png", title="random")
