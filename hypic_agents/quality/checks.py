"""What must hold before a score means anything: real generation agrees with scoring, and cold answers as warm does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hypic_agents.core import SamplingParams
from hypic_agents.errors import HypicError
from hypic_agents.quality.questions import Item
from hypic_agents.quality.scoring import argmax_tokens, clear_store, margin, num_right, score
from hypic_agents.runtime.policy import ReusePolicy

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

# Decoding one token at a time rounds otherwise than one pass does: a logit this close to the largest may win.
_ROUNDING = 1e-3
_ALLOWED = 0.01


def generation_agreement(engine: Engine, items: Sequence[Item], policies: Sequence[ReusePolicy]) -> float:
    """Share of questions for which greedy decoding gives what scoring says, up to the first wrong token.

    Raises:
        HypicError: more than 1 % of them disagree by more than rounding can explain.
    """
    agreeing = unexplained = 0
    for policy in policies:
        longest = max(len(item.answer_ids) for item in items)
        answers = engine.generate_batch([item.prompt for item in items], SamplingParams(max_tokens=longest), policy)
        for item, answer, logits in zip(items, answers, score(engine, items, policy), strict=True):
            told = argmax_tokens([logits])[0]
            told = told[: num_right(item, told, engine.tokenizer.eos_token_ids) + 1]
            given = (*answer.token_ids, *(item.answer_ids[-1:] if answer.finish_reason == "stop" else ()))
            differing = [i for i, (a, b) in enumerate(zip(given, told, strict=False)) if not _same(engine, a, b)]
            if not differing and len(given) >= len(told):
                agreeing += 1
            elif not differing or margin(logits[differing[0]], given[differing[0]]) > _ROUNDING:
                unexplained += 1
    asked = len(items) * len(policies)
    if unexplained > _ALLOWED * asked:
        raise HypicError(f"scores are not reported: generation contradicts scoring in {unexplained} of {asked} answers")
    return agreeing / asked


def _same(engine: Engine, a: int, b: int) -> bool:
    ends = engine.tokenizer.eos_token_ids
    return a == b or (a in ends and b in ends)


def cold_warm_differences(engine: Engine, items: Sequence[Item], policy: ReusePolicy) -> int:
    """How many answers depend on what was cached: an empty store, a warm one, one with some of the segments.

    In the mixed run every second segment was built before, one prompt at a time, and the rest is built in passes of
    other prompts.
    """
    clear_store(engine)
    cold = argmax_tokens(score(engine, items, policy))
    warm = argmax_tokens(score(engine, items, policy))
    clear_store(engine)
    mixed: list[tuple[int, ...]] = []
    for at in range(0, len(items), 3):
        few = items[at : at + 3]
        clear_store(engine)
        for item in few[::-1]:
            engine.warm([replace(item.prompt, spans=item.prompt.spans[:1] + item.prompt.spans[2::2])], policy)
        mixed += argmax_tokens(score(engine, few, policy))
    return sum(not a == b == c for a, b, c in zip(cold, warm, mixed, strict=True))
