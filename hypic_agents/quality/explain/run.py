"""The failure analysis: which answers a policy changes, where what they needed stood, and what would mend them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.explain.attempts import try_remedies
from hypic_agents.quality.explain.breakdown import breakdown, cheapest, labels, remedy_rows
from hypic_agents.quality.explain.changes import KINDS, Change, Progress, find_changes
from hypic_agents.quality.explain.places import FactPlace, place_facts
from hypic_agents.quality.explain.remedies import Attempt, ladder
from hypic_agents.quality.policies import named_policy
from hypic_agents.quality.questions import check_tasks, make_items
from hypic_agents.runtime.policy import ReusePolicy

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine


def run_explain(
    engine: Engine,
    *,
    questions_per_task: int,
    policy: str | ReusePolicy = "hypic",
    tasks: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress,
) -> dict[str, Any]:
    """Ask the questions of an evaluation under one policy and explain every answer that full recompute gives otherwise.

    Args:
        engine: Its store is emptied.
        questions_per_task: At least 1.
        policy: A policy that composes segments.
        tasks: Tasks of :mod:`hypic_agents.quality.worlds`, all by default.
        seed: Fixes the questions: those of ``run_eval`` with the same seed and counts.
        progress: Told of stages.

    Returns:
        JSON-ready: ``answers`` (every changed one), ``summary`` (tables of changed against all questions), ``remedies``
        (a row each, from cheap to dear), and counts. ``docs/failure_analysis.md`` says how to read it.

    Raises:
        InvalidInput: an unknown task or policy, one under which nothing can change, or no question.
    """
    if questions_per_task < 1:
        raise InvalidInput(f"questions_per_task={questions_per_task}: use 1 or more")
    chosen, parsed = check_tasks(tasks), named_policy(policy, engine.fingerprint)
    remedies = ladder(parsed)
    names = [remedy.name for remedy in remedies]
    items = []
    for done, task in enumerate(chosen):
        progress("writing questions", done, len(chosen))
        items += make_items(engine, task, questions_per_task, seed)
    progress("writing questions", len(chosen), len(chosen))

    changes = find_changes(engine, items, parsed, progress)
    plans = [engine.plan(item.prompt, parsed) for item in items]
    places = [place_facts(item, plan, engine.tokenizer) for item, plan in zip(items, plans, strict=True)]
    needed = [{place.source_id for place in places[change.at]} for change in changes]
    attempts = try_remedies(engine, changes, needed, remedies, progress)

    marks = [labels(item.task, own) for item, own in zip(items, places, strict=True)]
    facts = [place for own in places for place in own]
    kinds = Counter(change.kind for change in changes)
    return {
        "policy": parsed.name,
        "questions": len(items),
        "changed": {kind: kinds[kind] for kind in KINDS},
        "answers": [
            {
                **_answer(engine, change, places[change.at]),
                "live_share": plans[change.at].num_live / len(change.item.prompt),
                **_mended(names, own),
            }
            for change, own in zip(changes, attempts, strict=True)
        ],
        "summary": breakdown(marks, {change.at for change in changes}),
        "remedies": remedy_rows(names, attempts),
        "facts": {"needed": len(facts), "found": sum(place.position is not None for place in facts)},
        "live_share": sum(plan.num_live for plan in plans) / sum(len(item.prompt) for item in items),
        "seed": seed,
    }


def _answer(engine: Engine, change: Change, places: Sequence[FactPlace]) -> dict[str, Any]:
    item, decode = change.item, engine.tokenizer.decode
    return {
        "task": item.task,
        "question": item.question.text if item.question else "",
        "change": change.kind,
        "expected": item.question.answer if item.question else decode(item.answer_ids),
        "full_recompute": decode(change.full_ids),
        "reuse": decode(change.policy_ids),
        "first_difference": asdict(change.difference),
        "prompt_tokens": len(item.prompt),
        "segments": sum(span.segment.kind != "system" for span in item.prompt.spans),
        "needed": [asdict(place) for place in places],
    }


def _mended(names: Sequence[str], attempts: Sequence[Attempt]) -> dict[str, Any]:
    """``mended_by``: the restoring attempt with the fewest live tokens; ``guilty``: segments that mend it alone."""
    restoring = [attempt for attempt in attempts if attempt.restored]
    best = cheapest(names, attempts)
    return {
        "mended_by": best and {key: value for key, value in asdict(best).items() if key != "restored"},
        "restored_by": list(dict.fromkeys(attempt.remedy for attempt in restoring)),
        "guilty": [attempt.source_id for attempt in restoring if attempt.source_id],
    }
