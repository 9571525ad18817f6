"""Which experiments there are, and running some of them. Importing this does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypic_agents.bench.paper.findings import Experiment, tally
from hypic_agents.bench.paper.setup import Setup
from hypic_agents.errors import InvalidInput

NAMES = ("fixed-decay", "fidelity", "deviation", "seam-sweep", "building", "latency")


def choose(only: Sequence[str] | None) -> tuple[str, ...]:
    """The experiments to run, in their own order; all by default.

    Raises:
        InvalidInput: an unknown one.
    """
    unknown = [name for name in only or () if name not in NAMES]
    if unknown:
        raise InvalidInput(f"unknown experiment {unknown[0]!r}; the experiments are {', '.join(NAMES)}")
    return tuple(name for name in NAMES if not only or name in only)


def run(setup: Setup, names: Sequence[str]) -> dict[str, Any]:
    """``experiments`` by name, and how many of the paper's statements hold.

    Raises:
        HypicError: a correctness check failed, so nothing is reported.
    """
    made = {name: function(setup) for name, function in _experiments().items() if name in names}
    return {"experiments": made} | tally(made)


def _experiments() -> dict[str, Callable[[Setup], Experiment]]:
    from hypic_agents.bench.paper import building, deviation, fidelity, fixed_decay, latency, seam_sweep

    functions = (fixed_decay.run, fidelity.run, deviation.run, seam_sweep.run, building.run, latency.run)
    return dict(zip(NAMES, functions, strict=True))
