"""Answer quality of reuse policies against full recompute, on the same questions in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.checks import cold_warm_differences, generation_agreement
from hypic_agents.quality.policies import EVALUATED, named_policy, sweep_policies
from hypic_agents.quality.questions import Item, check_tasks, make_items
from hypic_agents.quality.scoring import Verdict, clear_store, judge, score
from hypic_agents.quality.summary import summarise
from hypic_agents.quality.sweep import curve
from hypic_agents.runtime.policy import ReusePolicy

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

Progress = Callable[[str, int, int], None]

_BLOCK: Final = 64
_GENERATED: Final = 42
_COLD_WARM: Final = 210


def run_eval(
    engine: Engine,
    *,
    questions_per_task: int,
    presets: Sequence[str] = EVALUATED,
    tasks: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress,
    seams: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Ask held-out questions under every policy and compare with full recompute.

    Answers are scored teacher-forced and count as right only if greedy decoding would give exactly them; a sample is
    really generated to confirm it.

    Args:
        engine: Its store is emptied.
        questions_per_task: At least 1.
        presets: Policies by name, with changes as in ``hypic:head_seam=4``, or ``file:PATH``; ``exact`` is always among
            them.
        tasks: Tasks of :mod:`hypic_agents.quality.worlds`, all by default.
        seed: Fixes the questions.
        progress: Told of stages.
        seams: Head seams to sweep in place of ``presets``; adds ``curve`` to the result.

    Raises:
        InvalidInput: an unknown task or policy, a policy file of another model, or no question.
        HypicError: generation contradicts scoring.
    """
    if questions_per_task < 1:
        raise InvalidInput(f"questions_per_task={questions_per_task}: use 1 or more")
    chosen = check_tasks(tasks)
    policies = _policies(presets if seams is None else sweep_policies(seams), engine.fingerprint)
    items: list[Item] = []
    for done, task in enumerate(chosen):
        progress("writing questions", done, len(chosen))
        items += make_items(engine, task, questions_per_task, seed)
    progress("writing questions", len(chosen), len(chosen))

    main = _main(policies)
    checked = [policies[0], main] if main is not policies[0] else [main]
    progress("generating", 0, 1)
    agrees = generation_agreement(engine, _spread(items, _GENERATED), checked)
    progress("generating", 1, 1)
    progress("cold and warm", 0, 1)
    differences = cold_warm_differences(engine, _spread(items, _COLD_WARM), main)
    progress("cold and warm", 1, 1)
    verdicts = _verdicts(engine, items, policies, progress)

    plans = {policy.name: [engine.plan(item.prompt, policy) for item in items] for policy in policies}
    prompt_tokens = sum(len(item.prompt) for item in items)
    live = {name: sum(plan.num_live for plan in made) / prompt_tokens for name, made in plans.items()}
    result = summarise([item.task for item in items], verdicts, live) | {
        "generation_agrees": agrees,
        "cold_equals_warm": True if differences == 0 else differences,
        "reused_share": 1 - live[main.name],
        "questions": len(items),
        "prompt_tokens": prompt_tokens,
        "seed": seed,
    }
    return result if seams is None else result | {"curve": curve(result)}


def _policies(specs: Sequence[str], fingerprint: str) -> list[ReusePolicy]:
    """Full recompute first, every policy once."""
    return [named_policy(spec, fingerprint) for spec in dict.fromkeys(("exact", *specs))]


def _main(policies: Sequence[ReusePolicy]) -> ReusePolicy:
    """The policy whose behaviour is checked: ``hypic`` where it is asked for, else the first that reuses."""
    reusing = [policy for policy in policies if not policy.exact]
    return next((policy for policy in reusing if policy.name == "hypic"), [*reusing, *policies][0])


def _spread(items: Sequence[Item], count: int) -> list[Item]:
    """``count`` of the items where there are as many, evenly spread, so that every task is among them."""
    count = min(count, len(items))
    return [items[at * len(items) // count] for at in range(count)]


def _verdicts(
    engine: Engine, items: Sequence[Item], policies: Sequence[ReusePolicy], progress: Progress
) -> dict[str, list[Verdict]]:
    """Verdicts of every policy in the order of ``items``; the policies take turns so that few logits are kept."""
    ends = engine.tokenizer.eos_token_ids
    verdicts: dict[str, list[Verdict]] = {policy.name: [] for policy in policies}
    clear_store(engine)
    for at in range(0, len(items), _BLOCK):
        progress("scoring", at, len(items))
        block = items[at : at + _BLOCK]
        exact = score(engine, block, policies[0])
        for policy in policies:
            logits = exact if policy.exact else score(engine, block, policy)
            verdicts[policy.name] += [judge(*row, ends) for row in zip(block, logits, exact, strict=True)]
    progress("scoring", len(items), len(items))
    return verdicts
