"""Which answers a policy changes against full recompute, and the first token at which they part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from torch import Tensor

from hypic_agents.completion import Completion
from hypic_agents.core import SamplingParams
from hypic_agents.quality.questions import Item
from hypic_agents.quality.scoring import clear_store, judge, score
from hypic_agents.runtime.policy import ReusePolicy, parse_policy

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

Kind = Literal["to_wrong", "to_right", "to_other"]
KINDS: Final[tuple[Kind, ...]] = ("to_wrong", "to_right", "to_other")
Progress = Callable[[str, int, int], None]

# Questions at a time: their logits are held together.
BLOCK: Final = 64
END: Final = "(end)"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token at which two answers part. Both passes are given the same tokens before it.

    Attributes:
        index: Its place in the answer, from 0.
        full: Full recompute's token; ``(end)`` where the answer ends.
        policy: The policy's token.
        kl: KL(full recompute || policy) there, nats.
        full_margin: By how much full recompute prefers its own token to the policy's, nats.
        policy_margin: By how much the policy prefers its own token to full recompute's, nats.
    """

    index: int
    full: str
    policy: str
    kl: float
    full_margin: float
    policy_margin: float


@dataclass(frozen=True, slots=True)
class Change:
    """One changed answer. ``at`` is its question's index; the answers hold their end where they ended in time."""

    at: int
    item: Item
    kind: Kind
    full_ids: tuple[int, ...]
    policy_ids: tuple[int, ...]
    difference: Difference


def find_changes(engine: Engine, items: Sequence[Item], policy: ReusePolicy, progress: Progress) -> tuple[Change, ...]:
    """Every question whose greedy answer under ``policy`` differs from full recompute's, in the order of ``items``.

    Scoring the exact answers finds those that are right under both; all others are really generated, up to one token
    more than the longest exact answer of their task.
    """
    exact = parse_policy("exact")
    clear_store(engine)
    doubtful = _not_right_twice(engine, items, exact, policy, progress)
    changes: list[Change] = []
    for done in range(0, len(doubtful), BLOCK):
        progress("generating", done, len(doubtful))
        block = doubtful[done : done + BLOCK]
        answers = [_generate(engine, items, block, chosen) for chosen in (exact, policy)]
        parted = [
            (at, full, other, index)
            for at, full, other in zip(block, *answers, strict=True)
            if (index := _first_difference(full, other)) is not None
        ]
        changes += _changes(engine, items, parted, exact, policy)
    progress("generating", len(doubtful), len(doubtful))
    return tuple(changes)


def _not_right_twice(
    engine: Engine, items: Sequence[Item], exact: ReusePolicy, policy: ReusePolicy, progress: Progress
) -> list[int]:
    ends = engine.tokenizer.eos_token_ids
    found: list[int] = []
    for done in range(0, len(items), BLOCK):
        progress("scoring", done, len(items))
        block = items[done : done + BLOCK]
        truth, given = score(engine, block, exact), score(engine, block, policy)
        for at, (item, a, b) in enumerate(zip(block, truth, given, strict=True), done):
            if not (judge(item, a, a, ends).right and judge(item, b, a, ends).right):
                found.append(at)
    progress("scoring", len(items), len(items))
    return found


def _generate(
    engine: Engine, items: Sequence[Item], block: Sequence[int], policy: ReusePolicy
) -> list[tuple[int, ...]]:
    longest: dict[str, int] = {}
    for item in items:
        longest[item.task] = max(longest.get(item.task, 0), len(item.answer_ids))
    answers: dict[int, tuple[int, ...]] = {}
    for task in dict.fromkeys(items[at].task for at in block):
        own = [at for at in block if items[at].task == task]
        sampling = SamplingParams(max_tokens=longest[task] + 1)
        made = engine.generate_batch([items[at].prompt for at in own], sampling, policy)
        answers |= {at: _ids(items[at], completion) for at, completion in zip(own, made, strict=True)}
    return [answers[at] for at in block]


def _ids(item: Item, completion: Completion) -> tuple[int, ...]:
    """The answer with its end. Any token that ends a turn is as good as the exact answer's."""
    return (*completion.token_ids, *(item.answer_ids[-1:] if completion.finish_reason == "stop" else ()))


def _first_difference(full: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    """None as well where one answer was cut before they part."""
    return next((i for i, (a, b) in enumerate(zip(full, other, strict=False)) if a != b), None)


def _changes(
    engine: Engine,
    items: Sequence[Item],
    parted: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], int]],
    exact: ReusePolicy,
    policy: ReusePolicy,
) -> list[Change]:
    forced = [replace(items[at], answer_ids=full[: index + 1]) for at, full, _, index in parted]
    rows = zip(parted, score(engine, forced, exact), score(engine, forced, policy), strict=True)
    return [
        Change(
            at,
            items[at],
            _kind(items[at].answer_ids, full, other),
            full,
            other,
            _difference(engine, items[at], (full[index], other[index]), index, truth[index], given[index]),
        )
        for (at, full, other, index), truth, given in rows
    ]


def _kind(wanted: tuple[int, ...], full: tuple[int, ...], other: tuple[int, ...]) -> Kind:
    if full == wanted:
        return "to_wrong"
    return "to_right" if other == wanted else "to_other"


def _difference(
    engine: Engine, item: Item, tokens: tuple[int, int], index: int, truth: Tensor, given: Tensor
) -> Difference:
    """``truth`` and ``given`` are logits ``[vocab]``."""
    full, other = (END if t == item.answer_ids[-1] else engine.tokenizer.decode((t,)) for t in tokens)
    log_p, log_q = truth.log_softmax(-1), given.log_softmax(-1)
    kl = (log_p.exp() * (log_p - log_q)).sum().item()
    a, b = tokens
    return Difference(index, full, other, max(0.0, kl), (truth[a] - truth[b]).item(), (given[b] - given[a]).item())
