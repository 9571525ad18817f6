"""What the beginning of a prompt is, for its checkpoints: its tokens, and what the plan does with them. No torch.

A checkpoint stands for the states that a request itself would have there. These depend on the tokens and on what of
them is composed from which entries, so both name it: a request takes a checkpoint only where its own plan decides the
same up to there, and answers as it would without one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any

from hypic_agents.core import Prompt
from hypic_agents.runtime.cache.prefix_base import Domain, Match, Source, Symbol
from hypic_agents.runtime.plan import Plan, ReusedSpan

MIN_CHECKPOINT = 16
"""Tokens of the shortest beginning that is worth the states behind it."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A prompt as the tree of checkpoints sees it.

    Attributes:
        symbols: One a token.
        domain: Every scope in it.
        sources: Where its texts come from, in order of position.
        least: What the plan takes from an entry that is exact; a checkpoint of less is of no use.
        message_end: End of the last message that is complete, if that lies where all behind it is live; else 0.
    """

    symbols: tuple[Symbol, ...]
    domain: Domain
    sources: tuple[Source, ...]
    least: int
    message_end: int


@dataclass(frozen=True, slots=True)
class Continuation:
    """A running request as the tree of checkpoints sees it.

    Attributes:
        beginning: What its checkpoints are kept as; None if none are.
        match: What it continues from, if anything.
        since: The tree's epoch when that was looked up.
    """

    beginning: Beginning | None = None
    match: Match[Any, Any] | None = None
    since: int = 0

    @property
    def start(self) -> int:
        """First tokens of the prompt that need no computing."""
        return 0 if self.match is None else self.match.length

    @property
    def capture_at(self) -> int:
        """Where in the prompt a checkpoint is to be recorded; 0 for nowhere."""
        end = 0 if self.beginning is None else self.beginning.message_end
        return end if end > self.start and end >= MIN_CHECKPOINT else 0


def find_beginning(prompt: Prompt, plan: Plan, end_ids: Collection[int]) -> Beginning | None:
    """The beginning of a prompt; None where nothing of it may be kept or taken.

    That is under policies that compute everything or keep checkpoints of their own, and for a prompt of which it is
    not known who may see it.

    Args:
        prompt: The whole prompt.
        plan: Its plan.
        end_ids: Tokens that end a message.
    """
    domain = _domain(prompt)
    if not domain or plan.policy.exact or plan.policy.prefix:
        return None
    sources = (
        (max(0, min(span.origin, span.start)), span.segment.source_id, span.segment.version)
        for span in prompt.spans
        if span.segment.source_id
    )
    first = plan.spans[0]
    return Beginning(
        symbols=_symbols(plan, prompt.token_ids),
        domain=domain,
        sources=tuple(sources),
        least=first.end if isinstance(first, ReusedSpan) and first.build.is_prefix else 0,
        message_end=_message_end(prompt.token_ids, plan.spans[-1].start, end_ids),
    )


def _domain(prompt: Prompt) -> Domain:
    own = frozenset() if prompt.scope is None else frozenset([prompt.scope])
    return own | {span.segment.scope for span in prompt.spans}


def _symbols(plan: Plan, token_ids: Sequence[int]) -> tuple[Symbol, ...]:
    symbols: list[Symbol] = list(token_ids)
    for span in plan.spans:
        if isinstance(span, ReusedSpan) and (not span.build.is_prefix or plan.policy.compose == "zero"):
            build, policy = span.build, plan.policy
            # Interned, because long beginnings are compared token by token.
            how = intern(f"{policy.compose},{policy.place_rope},{build.recipe},{build.digest}")
            symbols[span.start : span.end] = [(token, how) for token in token_ids[span.start : span.end]]
    return tuple(symbols)


def _message_end(token_ids: Sequence[int], start: int, end_ids: Collection[int]) -> int:
    """Behind the last token but one at most: the last one is computed for its logits."""
    return next((at for at in range(len(token_ids) - 1, start, -1) if token_ids[at - 1] in end_ids), 0)
