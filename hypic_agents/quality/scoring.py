"""Teacher-forced scoring: logits of given answers under a policy, and what greedy decoding would make of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hypic_agents.quality.questions import Item
from hypic_agents.runtime.policy import ReusePolicy

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

# Bounds of one packed pass: live tokens, prompts, and tokens of all prompts together (their keys are gathered).
_PASS_LIVE = 10_000
_PASS_PROMPTS = 48
_PASS_TOKENS = 48_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """One question under one policy.

    Attributes:
        right: Greedy decoding gives exactly the answer.
        tokens: Largest logit at each position of the answer.
        agreements: Positions at which full recompute has the same largest logit.
        kl: KL(full recompute || policy) summed over the positions, nats.
    """

    right: bool
    tokens: tuple[int, ...]
    agreements: int
    kl: float


def score(
    engine: Engine, items: Sequence[Item], policy: ReusePolicy, *, most_prompts: int = _PASS_PROMPTS
) -> list[Tensor]:
    """Logits ``[answer tokens, vocab]`` of every item, in passes of at most ``most_prompts`` prompts."""
    logits: list[Tensor] = []
    for group in _passes(engine, items, policy, most_prompts):
        logits += engine.score([item.prompt for item in group], [item.answer_ids for item in group], policy)
    return logits


def judge(item: Item, logits: Tensor, exact: Tensor, ends: frozenset[int]) -> Verdict:
    """The verdict on one item, given its logits and those of full recompute, both ``[answer tokens, vocab]``."""
    tokens = tuple(logits.argmax(-1).tolist())
    truth = exact.log_softmax(-1)
    kl = (truth.exp() * (truth - logits.log_softmax(-1))).sum().item()
    agreements = int((logits.argmax(-1) == exact.argmax(-1)).sum().item())
    return Verdict(num_right(item, tokens, ends) == len(tokens), tokens, agreements, max(0.0, kl))


def num_right(item: Item, tokens: Sequence[int], ends: frozenset[int]) -> int:
    """How many first tokens are the answer's; any end of a turn is as good as another."""
    for position, (token, wanted) in enumerate(zip(tokens, item.answer_ids, strict=True)):
        if token != wanted and not (token in ends and wanted in ends):
            return position
    return len(tokens)


def argmax_tokens(logits: Sequence[Tensor]) -> list[tuple[int, ...]]:
    return [tuple(one.argmax(-1).tolist()) for one in logits]


def clear_store(engine: Engine) -> None:
    """Drop every entry that no request holds, and every checkpoint."""
    engine.store.evict(engine.store.stats().held_bytes)
    engine.prefixes.clear()


def _passes(engine: Engine, items: Sequence[Item], policy: ReusePolicy, most_prompts: int) -> Iterator[list[Item]]:
    group: list[Item] = []
    live = total = 0
    for item in items:
        more = engine.plan(item.prompt, policy).num_live + len(item.answer_ids)
        full = live + more > _PASS_LIVE or total + len(item.prompt) > _PASS_TOKENS or len(group) == most_prompts
        if group and full:
            yield group
            group, live, total = [], 0, 0
        group.append(item)
        live += more
        total += len(item.prompt)
    if group:
        yield group


def margin(logits: Tensor, token: int) -> float:
    """How far ``token`` lies below the largest logit ``[vocab]``, as a share of the largest absolute value."""
    return ((logits.max() - logits[token]) / logits.abs().max().clamp_min(torch.finfo(logits.dtype).tiny)).item()
