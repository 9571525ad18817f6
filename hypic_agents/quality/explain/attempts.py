"""Trying remedies on changed answers: which give full recompute's answer back, and at what cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hypic_agents.quality.explain.changes import BLOCK, Change, Progress
from hypic_agents.quality.explain.remedies import Attempt, Remedy, trials
from hypic_agents.quality.questions import Item
from hypic_agents.quality.scoring import argmax_tokens, num_right, score
from hypic_agents.runtime.policy import ReusePolicy

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine


def try_remedies(
    engine: Engine,
    changes: Sequence[Change],
    needed: Sequence[Collection[str]],
    remedies: Sequence[Remedy],
    progress: Progress,
) -> list[list[Attempt]]:
    """For each changed answer, every trial of every remedy.

    Args:
        engine: What answers.
        changes: The changed answers.
        needed: For each, the source ids of the segments that its question needs.
        remedies: What to try.
        progress: Told of stages.
    """
    attempts: list[list[Attempt]] = [[] for _ in changes]
    for done, remedy in enumerate(remedies):
        progress("trying remedies", done, len(remedies))
        plain = [
            (at, trial.source_id, replace(change.item, prompt=trial.prompt, answer_ids=change.full_ids))
            for at, change in enumerate(changes)
            for trial in trials(remedy, change.item.prompt, needed[at])
        ]
        restored = _restored(engine, [item for _, _, item in plain], remedy.policy)
        for (at, source_id, item), back in zip(plain, restored, strict=True):
            live = engine.plan(item.prompt, remedy.policy).num_live
            attempts[at].append(Attempt(remedy.name, source_id, live, live / len(item.prompt), back))
    progress("trying remedies", len(remedies), len(remedies))
    return attempts


def _restored(engine: Engine, items: Sequence[Item], policy: ReusePolicy) -> list[bool]:
    ends = engine.tokenizer.eos_token_ids
    restored: list[bool] = []
    for done in range(0, len(items), BLOCK):
        block = items[done : done + BLOCK]
        told = argmax_tokens(score(engine, block, policy))
        restored += [num_right(item, row, ends) == len(row) for item, row in zip(block, told, strict=True)]
    return restored
