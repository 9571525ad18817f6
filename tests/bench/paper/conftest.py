"""The experiments at their smallest, each run once: on the bundled model and on random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from hypic_agents.bench.paper.findings import Experiment
from hypic_agents.bench.paper.run import run
from hypic_agents.bench.paper.setup import QUICK, Setup
from hypic_agents.cli.paper import ask
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine

SMALL = "random:qwen3_5:2m"


def quiet(_stage: str, _done: int, _total: int) -> None:
    pass


def load(name: str, dtype: str) -> Engine:
    return Engine.load(name, EngineConfig(model_dtype=dtype, threads=1))


SETUP = Setup(load, ask, trained="tiny", timed=SMALL, sizes=replace(QUICK, prompts=1), seed=0, progress=quiet)
# The bundled model is so close to full recompute that two questions show rounding; random weights show the rule.
SETUPS = {"seam-sweep": replace(SETUP, trained=SMALL)}


@pytest.fixture(scope="session")
def run_once() -> Callable[[str], Experiment]:
    @cache
    def made(name: str) -> Experiment:
        experiment: Experiment = run(SETUPS.get(name, SETUP), [name])["experiments"][name]
        return experiment

    return made
