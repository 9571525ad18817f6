"""Which prompts changed under a policy, with the answers that both really give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hypic_agents.core import SamplingParams
from hypic_agents.quality.calibrate.items import EXACT, Asked, Progress
from hypic_agents.quality.calibrate.outcomes import Outcome, Trial

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

Effect = Literal["lost", "won", "changed"]

_EXCERPT: Final = 160
_BATCH: Final = 16
# Answers that differ may be longer than the one that was scored.
_ROOM: Final = 16


@dataclass(frozen=True, slots=True)
class Change:
    """One prompt that the policy answers otherwise than full recompute.

    Attributes:
        line: Its line in the file.
        question: The end of its question.
        effect: "lost" (right under full recompute only), "won" (right under the policy only), or "changed" (neither
            right, or no answer given).
        kl: KL(full recompute || policy) over the reference answer, nats.
    """

    line: int
    question: str
    effect: Effect
    expected: str | None
    full_recompute: str
    policy: str
    kl: float


def list_changes(engine: Engine, asked: Sequence[Asked], trial: Trial, progress: Progress) -> tuple[Change, ...]:
    """The prompts that ``trial`` changed; their answers are generated."""
    found = [(one, outcome) for one, outcome in zip(asked, trial.outcomes, strict=True) if outcome.changed]
    changes: list[Change] = []
    for start in range(0, len(found), _BATCH):
        progress("answering changed prompts", start, len(found))
        batch = found[start : start + _BATCH]
        sampling = SamplingParams(max_tokens=max(len(one.item.answer_ids) for one, _ in batch) + _ROOM)
        prompts = [one.item.prompt for one, _ in batch]
        before = engine.generate_batch(prompts, sampling, EXACT)
        after = engine.generate_batch(prompts, sampling, trial.policy)
        for (one, outcome), old, new in zip(batch, before, after, strict=True):
            changes.append(
                Change(
                    line=one.record.line,
                    question=excerpt(one.record.question),
                    effect=_effect(one, outcome),
                    expected=one.record.answer,
                    full_recompute=old.text.strip(),
                    policy=new.text.strip(),
                    kl=outcome.kl,
                )
            )
    if found:
        progress("answering changed prompts", len(found), len(found))
    return tuple(changes)


def excerpt(text: str) -> str:
    """The end of a text on one line: a question stands behind the documents that come with it."""
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT else "…" + line[1 - _EXCERPT :]


def _effect(one: Asked, outcome: Outcome) -> Effect:
    if not one.answered:
        return "changed"
    return "lost" if outcome.lost else "won" if outcome.won else "changed"
