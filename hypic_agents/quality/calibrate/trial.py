"""Every prompt under every candidate, scored once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hypic_agents.quality.calibrate.items import EXACT, Asked, Progress
from hypic_agents.quality.calibrate.outcomes import Outcome, Trial, Trials
from hypic_agents.quality.questions import Item
from hypic_agents.quality.scoring import Verdict, clear_store, judge, num_right, score
from hypic_agents.runtime.policy import ReusePolicy

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

_BLOCK: Final = 64


def run_trials(engine: Engine, asked: Sequence[Asked], candidates: Sequence[ReusePolicy], progress: Progress) -> Trials:
    """Score every prompt under full recompute and under every candidate that reuses anything of these prompts.

    What a policy answers does not depend on what is cached, so one run a policy is enough. The policies take turns, so
    that the logits of few prompts are held at a time. The engine's store is emptied first.
    """
    items = [one.item for one in asked]
    live = {
        policy: [engine.plan(item.prompt, policy, max_new_tokens=len(item.answer_ids)).num_live for item in items]
        for policy in dict.fromkeys((EXACT, *candidates))
    }
    whole = sum(live[EXACT])
    tried = [policy for policy, lens in live.items() if policy == EXACT or sum(lens) < whole]
    outcomes: dict[ReusePolicy, list[Outcome]] = {policy: [] for policy in tried}
    ends = engine.tokenizer.eos_token_ids
    clear_store(engine)
    for start in range(0, len(items), _BLOCK):
        progress("scoring", start, len(items))
        block = asked[start : start + _BLOCK]
        exact = score(engine, [one.item for one in block], EXACT)
        truth = [judge(one.item, logits, logits, ends) for one, logits in zip(block, exact, strict=True)]
        for policy in tried:
            given = exact if policy == EXACT else score(engine, [one.item for one in block], policy)
            for i, (one, logits) in enumerate(zip(block, given, strict=True)):
                verdict = judge(one.item, logits, exact[i], ends)
                outcomes[policy].append(_outcome(one, verdict, truth[i], ends, live[policy][start + i]))
    progress("scoring", len(items), len(items))
    return Trials(
        tuple(Trial(policy, tuple(outcomes[policy])) for policy in tried),
        tuple(len(item.prompt) for item in items),
        tuple(one.answered for one in asked),
    )


def _outcome(one: Asked, verdict: Verdict, truth: Verdict, ends: frozenset[int], live: int) -> Outcome:
    changed = _greedy(one.item, verdict, ends) != _greedy(one.item, truth, ends)
    lost = truth.right and not verdict.right if one.answered else changed
    won = one.answered and verdict.right and not truth.right
    return Outcome(lost, won, changed, verdict.kl, len(verdict.tokens), live)


def _greedy(item: Item, verdict: Verdict, ends: frozenset[int]) -> tuple[int, ...]:
    """Greedy tokens as far as they are known: behind the first that differs from the reference, none is."""
    right = num_right(item, verdict.tokens, ends)
    return (*item.answer_ids[:right], *verdict.tokens[right : right + 1])
