"""Plans under a fallback: given kinds, or the whole policy, computed live. Pure functions; no torch, no store.

A fallback changes the effective policy, never the rule: a plan stays a pure function of the prompt, the policy and what
fell back, so a cold request and a warm one still answer the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypic_agents.completion import AUDIT_REASON
from hypic_agents.core import Prompt
from hypic_agents.runtime.plan import LiveSpan, Plan, ReusedSpan, make_plan
from hypic_agents.runtime.policy import ReusePolicy

WHOLE_POLICY = "*"
"""Stands where a kind would: no kind alone is to blame, so nothing is reused."""

Reasons = Mapping[str, str]
"""Why a kind (or ``WHOLE_POLICY``) fell back, by kind."""


def effective_plan(prompt: Prompt, policy: ReusePolicy, fallen: Reasons) -> Plan:
    """The plan of ``prompt`` under ``policy`` with the kinds of ``fallen`` live; its notes say so.

    Prefix reuse needs all that stands before a checkpoint, so any fallback turns it off as a whole.
    """
    if not fallen:
        return make_plan(prompt, policy)
    if policy.prefix or WHOLE_POLICY in fallen:
        reason = fallen[WHOLE_POLICY] if WHOLE_POLICY in fallen else next(iter(fallen.values()))
        plan = make_plan(prompt, policy.with_(prefix=False, exact=True))
        notes = tuple(replace(note, reason=AUDIT_REASON + reason) for note in plan.notes)
        # The plan keeps the name of what fell back, so that it is still watched; prefix passes run by their policy.
        return replace(plan, policy=plan.policy if policy.prefix else policy, notes=notes)
    if "system" in fallen:
        # Conditioned builds stand behind the system segment's entry, which is not to be trusted.
        plan = replace(make_plan(prompt, policy.with_(condition_on_system=False)), policy=policy)
    else:
        plan = make_plan(prompt, policy)
    return keep_live(plan, fallen)


def keep_live(plan: Plan, fallen: Reasons) -> Plan:
    """``plan`` with the segments of some kinds live; everything else stays as it was."""
    notes = []
    lost: set[ReusedSpan] = set()
    for note in plan.notes:
        kind = note.span.segment.kind
        if note.reused is not None and kind in fallen:
            lost.update(note.pieces)
            notes.append(replace(note, reused=None, further=(), reason=AUDIT_REASON + fallen[kind]))
        else:
            notes.append(note)
    spans: list[LiveSpan | ReusedSpan] = []
    for span in plan.spans:
        one = LiveSpan(span.start, span.end) if isinstance(span, ReusedSpan) and span in lost else span
        last = spans[-1] if spans else None
        if isinstance(one, LiveSpan) and isinstance(last, LiveSpan):
            spans[-1] = LiveSpan(last.start, one.end)
        else:
            spans.append(one)
    return replace(plan, spans=tuple(spans), notes=tuple(notes))


def reused_kinds(plan: Plan) -> frozenset[str]:
    """Kinds of the segments that ``plan`` composes, exact checkpoints included."""
    return frozenset(note.span.segment.kind for note in plan.notes if note.reused is not None)


def approximate_kinds(plan: Plan) -> frozenset[str]:
    """Kinds whose reuse may change an answer by itself: those of segments built apart from what stands before them."""
    return frozenset(
        note.span.segment.kind for note in plan.notes if note.reused is not None and not note.reused.build.is_prefix
    )
