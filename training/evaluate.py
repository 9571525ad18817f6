"""Quick held-out evaluation during training: ordinary, isolated, and isolated with a zeroed incoming state."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch

from training.batches import in_batches
from training.config import TrainConfig
from training.encode import Example
from training.parallel import Group
from training.scoring import outcomes
from training.sequences import Forward


def accepts(forward: Forward, option: str) -> bool:
    """Whether ``forward`` takes a keyword ``option``."""
    return option in inspect.signature(forward).parameters


@torch.no_grad()
def evaluate(
    model: Any, examples: Sequence[Example], forward: Forward, config: TrainConfig, group: Group, *, can_isolate: bool
) -> dict[str, dict[str, float]]:
    """Exact match (teacher-forced) by mode and task; every worker takes its share of ``examples``.

    ``isolated_zero`` starts every live span from a zero state: a task on which it loses nothing carries nothing
    through the recurrent state.
    """
    modes: dict[str, dict[str, Any]] = {"ordinary": {"isolated": False}}
    if can_isolate:
        modes["isolated"] = {"isolated": True}
        if accepts(forward, "zero_state"):
            modes["isolated_zero"] = {"isolated": True, "zero_state": True}
    result: dict[str, dict[str, float]] = {}
    for mode, options in modes.items():
        seen: dict[str, list[bool]] = defaultdict(list)
        mine = []
        for batch in in_batches(examples[group.rank :: group.size], config.tokens_per_step):
            output = forward(
                model, [e.sequence for e in batch], head_seam=8, tail_seam=config.tail_seam, condition=True, **options
            )
            mine += outcomes(output, batch)
        for task, right in chain.from_iterable(group.gather(mine)):
            seen[task].append(right)
        result[mode] = {task: round(sum(s) / len(s), 4) for task, s in sorted(seen.items())}
    return result
