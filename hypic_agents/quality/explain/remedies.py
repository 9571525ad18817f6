"""What could mend a changed answer: wider seams, segments computed live, all of the prompt. No torch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from hypic_agents.core import Prompt, SegmentSpan
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.policy import PRESETS, ReusePolicy

HEAD_SEAMS: Final = (8, 16, 32, 64)
TAIL_SEAMS: Final = (8, 16)
_MODES: Final = {False: "alone", True: "conditioned"}

# Which segments are computed live besides: none, those the question needs, or one at a time.
Live = Literal["none", "needed", "one"]


@dataclass(frozen=True, slots=True)
class Remedy:
    """One rung: another policy, or the same one with some segments computed live."""

    name: str
    policy: ReusePolicy
    live: Live = "none"


@dataclass(frozen=True, slots=True)
class Trial:
    """A prompt to try; ``source_id`` names the one segment that is live in it besides, if there is one."""

    prompt: Prompt
    source_id: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One trial of one remedy on one changed answer.

    Attributes:
        remedy: The remedy's name.
        source_id: The one segment that was live besides, if the remedy tries one at a time.
        live_tokens: Prompt tokens that were computed.
        live_share: Their share of the prompt.
        restored: Whether greedy decoding gives full recompute's answer.
    """

    remedy: str
    source_id: str
    live_tokens: int
    live_share: float
    restored: bool


def ladder(policy: ReusePolicy) -> tuple[Remedy, ...]:
    """The remedies for a policy, each once; the last is full recompute.

    Each changes one thing of the policy: how it composes, a seam (with segments built alone or behind the system
    prompt), or which segments it reuses.

    Raises:
        InvalidInput: a policy under which nothing can change.
    """
    if policy.exact or policy.prefix:
        raise InvalidInput(f"policy {policy.name!r} answers as full recompute does; choose one that composes segments")
    exact = policy.with_(compose="transition", count_seam_twice=False, place_rope=True)
    hypic = PRESETS["hypic"].with_(name=policy.name)
    changed = [("exact composition", exact)]
    if hypic.head_seam >= policy.head_seam and hypic.tail_seam >= policy.tail_seam:
        changed.append(("policy hypic", hypic))
    for seam in sorted({policy.head_seam, *HEAD_SEAMS}):
        for conditioned in (policy.condition_on_system, not policy.condition_on_system):
            if seam >= policy.head_seam:
                by_kind = tuple((kind, max(width, seam)) for kind, width in policy.head_seam_by_kind)
                wider = policy.with_(head_seam=seam, head_seam_by_kind=by_kind, condition_on_system=conditioned)
                changed.append((f"head seam {seam}, {_MODES[conditioned]}", wider))
    changed += [(f"tail seam {seam}", policy.with_(tail_seam=seam)) for seam in TAIL_SEAMS if seam > policy.tail_seam]
    # All of these bear the policy's own name, so those that come to the same are equal.
    once: dict[ReusePolicy, str] = {policy: ""}
    for name, other in changed:
        once.setdefault(other, name)
    return (
        *(Remedy(name, other) for other, name in once.items() if name),
        Remedy("one segment live", policy, "one"),
        Remedy("needed segments live", policy, "needed"),
        Remedy("all live", PRESETS["exact"]),
    )


def trials(remedy: Remedy, prompt: Prompt, needed: Collection[str]) -> Iterator[Trial]:
    """The prompts that a remedy means for one question; none where the question needs no segment.

    A segment is made live by not declaring it: the prompt's tokens stay the same.

    Args:
        remedy: What to try.
        prompt: The question's prompt.
        needed: Source ids of the segments that the question needs.
    """
    match remedy.live:
        case "none":
            yield Trial(prompt)
        case "needed":
            kept = tuple(span for span in prompt.spans if not (_movable(span) and span.segment.source_id in needed))
            if len(kept) < len(prompt.spans):
                yield Trial(replace(prompt, spans=kept))
        case "one":
            for at, span in enumerate(prompt.spans):
                if _movable(span):
                    kept = prompt.spans[:at] + prompt.spans[at + 1 :]
                    yield Trial(replace(prompt, spans=kept), span.segment.source_id or f"segment {at}")


def _movable(span: SegmentSpan) -> bool:
    """The system prompt stands in front of everything: what is kept of it is exact."""
    return span.segment.kind != "system"
