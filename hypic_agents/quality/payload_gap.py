"""What compact payloads do to answers: the same questions with plain and compact payloads, and by full recompute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.questions import Item, check_tasks, make_items
from hypic_agents.quality.scoring import Verdict, judge, score
from hypic_agents.quality.statistics import Gap, mean_gap, paired_gap
from hypic_agents.runtime.compact import Compaction
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.policy import parse_policy

Progress = Callable[[str, int, int], None]

_BLOCK: Final = 64
_EXACT: Final = parse_policy("exact")


def payload_gap(
    engine: Engine,
    compactions: Sequence[Compaction],
    *,
    questions_per_task: int,
    tasks: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Ask held-out questions with payloads as they were built and with each compaction, under the engine's policy.

    Args:
        engine: Gives the model and its settings; its own store is not used.
        compactions: What to compare with payloads as they are.
        questions_per_task: At least 1.
        tasks: All by default.
        seed: Fixes the questions.
        progress: Told of questions.

    Returns:
        One flat dict a compaction, means over the tasks in points (hundredths of the questions): ``gap_plain`` and
        ``gap_compact`` below full recompute; ``gap_change``, by how much the gap grows with the compact payloads, with
        its 95 % interval ``gap_change_low`` and ``gap_change_high`` from pairs of the same question; ``to_wrong`` and
        ``to_right``, questions that change; ``kl_plain`` and ``kl_compact`` from full recompute, in nats a token.

    Raises:
        InvalidInput: no question, or an unknown task.
    """
    if questions_per_task < 1:
        raise InvalidInput(f"questions_per_task={questions_per_task}: use 1 or more")
    items = [item for task in check_tasks(tasks) for item in make_items(engine, task, questions_per_task, seed)]
    kinds = [Compaction(), *compactions]
    exact: list[Verdict] = []
    judged: list[list[Verdict]] = [[] for _ in kinds]
    ends = engine.tokenizer.eos_token_ids
    with ExitStack() as stack:
        engines = [stack.enter_context(_sibling(engine, kind)) for kind in kinds]
        for start in range(0, len(items), _BLOCK):
            progress("asking", start, len(items))
            block = items[start : start + _BLOCK]
            truth = score(engines[0], block, _EXACT)
            exact += [judge(*row, ends) for row in zip(block, truth, truth, strict=True)]
            for verdicts, other in zip(judged, engines, strict=True):
                given = score(other, block, other.config.default_policy)
                verdicts += [judge(*row, ends) for row in zip(block, given, truth, strict=True)]
    progress("asking", len(items), len(items))
    return [_row(items, exact, judged[0], verdicts) for verdicts in judged[1:]]


def _sibling(engine: Engine, compaction: Compaction) -> Engine:
    """An engine on the same weights, with a store of its own in memory."""
    config = replace(
        engine.config,
        store_dir=None,
        store_url=None,
        audit_share=0.0,
        state_numbers=compaction.numbers,
        drop_transition_below=compaction.drop_below,
        transition_low_rank_within=compaction.low_rank_within,
    )
    return Engine(engine.model, engine.tokenizer, engine.fingerprint, config, name=engine.name)


def _row(
    items: Sequence[Item], exact: Sequence[Verdict], plain: Sequence[Verdict], compact: Sequence[Verdict]
) -> dict[str, Any]:
    by_task: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        by_task.setdefault(item.task, []).append(index)
    change = _gap(by_task, plain, compact)
    return {
        "gap_plain": _gap(by_task, exact, plain).points,
        "gap_compact": _gap(by_task, exact, compact).points,
        "gap_change": change.points,
        "gap_change_low": change.low,
        "gap_change_high": change.high,
        "to_wrong": sum(a.right and not b.right for a, b in zip(plain, compact, strict=True)),
        "to_right": sum(b.right and not a.right for a, b in zip(plain, compact, strict=True)),
        "kl_plain": _kl(plain),
        "kl_compact": _kl(compact),
        "questions": len(items),
    }


def _gap(by_task: Mapping[str, Sequence[int]], first: Sequence[Verdict], second: Sequence[Verdict]) -> Gap:
    return mean_gap(
        [paired_gap([first[i].right for i in at], [second[i].right for i in at]) for at in by_task.values()]
    )


def _kl(verdicts: Sequence[Verdict]) -> float:
    return sum(verdict.kl for verdict in verdicts) / sum(len(verdict.tokens) for verdict in verdicts)
