from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hypic_agents.bench.paper.findings import Experiment
from hypic_agents.bench.paper.pictures import draw
from hypic_agents.errors import InvalidInput


def test_the_papers_figures_become_pictures(run_once: Callable[[str], Experiment], tmp_path: Path) -> None:
    made = {name: run_once(name) for name in ("fixed-decay", "deviation", "seam-sweep", "latency")}
    paths = draw(made, tmp_path / "new")
    assert [path.name for path in paths] == ["deviation.png", "seam-sweep.png", "latency.png"]
    assert all(path.stat().st_size > 5000 for path in paths)


def test_a_directory_that_cannot_be_made_is_refused(run_once: Callable[[str], Experiment], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot save the picture"):
        draw({"latency": run_once("latency")}, tmp_path / "file")
