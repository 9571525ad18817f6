"""One packed pass over the live tokens of some requests, composed with what they reuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypic_agents.runtime.batch import LiveRun, ReusedRun, Row
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.plan import Build, LiveSpan, Plan, ReusedSpan
from hypic_agents.runtime.state import RowState, SegmentPayload


def assembly_row(
    plan: Plan,
    token_ids: Sequence[int],
    entries: Mapping[SegmentKey, SegmentEntry],
    fingerprint: str,
    *,
    answer_ids: Sequence[int] = (),
    past: RowState | None = None,
    capture_at: int = 0,
    room: int = 0,
) -> Row:
    """The row of one request.

    Args:
        plan: Its live and reused spans. Reused spans without an entry are live, and captured at their end: that is how
            strict-prefix checkpoints come into being.
        token_ids: The prompt.
        entries: What the store holds of the plan's builds.
        fingerprint: Names the model in keys.
        answer_ids: Tokens appended to the prompt to be scored: logits are returned for each of them, not only for
            the next token. The last of them is a target only.
        past: The state behind the prompt's first tokens, which are then no part of the row. Does not end inside a
            reused span.
        capture_at: Prompt position, within the last live span, at which the state is recorded; 0 for nowhere.
        room: How many tokens its buffers shall take behind the prompt, where they are made now.
    """
    begin = 0 if past is None else past.length
    elements: list[LiveRun | ReusedRun] = []
    for span in plan.spans:
        if span.end <= begin:
            continue
        if isinstance(span, ReusedSpan):
            entry = entries.get(span.build.key(fingerprint))
            if entry is not None:
                elements.append(_reused(span, plan, entry))
                continue
        start = max(span.start, begin)
        ids = tuple(token_ids[start : span.end])
        capture = isinstance(span, ReusedSpan)
        last = elements[-1] if elements else None
        if isinstance(last, LiveRun) and not last.capture and not capture:
            elements[-1] = LiveRun(last.start, last.token_ids + ids)
        else:
            elements.append(LiveRun(start, ids, capture=capture))
    if capture_at:
        last = elements.pop()
        assert isinstance(last, LiveRun) and last.start < capture_at < last.start + last.length
        at = capture_at - last.start
        elements.append(LiveRun(last.start, last.token_ids[:at], capture=True))
        elements.append(LiveRun(capture_at, last.token_ids[at:]))
    if len(answer_ids) > 1:
        last = elements[-1]
        assert isinstance(last, LiveRun)
        elements[-1] = LiveRun(last.start, last.token_ids + tuple(answer_ids[:-1]), capture=last.capture)
    row = Row(tuple(elements), past=past, start=begin, logits_from=max(1, len(answer_ids)))
    return replace(row, room=len(token_ids) - row.end + room) if room else row


def _reused(span: ReusedSpan, plan: Plan, entry: SegmentEntry) -> ReusedRun:
    payload = entry.payload
    assert isinstance(payload, SegmentPayload)
    policy = plan.policy
    compose = policy.compose
    if span.build.is_prefix and compose != "zero":
        compose = "last"  # the checkpoint is the state itself, and nothing stands before it
    return ReusedRun(span.start, span.end - span.start, payload, compose, policy.place_rope)


def builds_from(plan: Plan, start: int) -> list[Build]:
    """The entries that a row needs of which the first ``start`` tokens are there already."""
    wanted = [span.build for span in plan.spans if isinstance(span, ReusedSpan) and span.start >= start]
    if start and any(build.prefix_ids for build in wanted):
        # Should one of them be missing, it is built behind the prompt's exact prefix.
        return [build for build in plan.builds if build.is_prefix] + wanted
    return wanted


def missing_checkpoints(plan: Plan, entries: Mapping[SegmentKey, SegmentEntry], fingerprint: str) -> list[ReusedSpan]:
    """Reused spans of the plan that run live this time, in order: the captures of the row."""
    return [span for span in plan.spans if isinstance(span, ReusedSpan) and span.build.key(fingerprint) not in entries]


def leading_hits(plan: Plan, entries: Mapping[SegmentKey, SegmentEntry], fingerprint: str) -> set[SegmentKey]:
    """Keys of the checkpoints that are held without a gap from the prompt's beginning."""
    keys: set[SegmentKey] = set()
    for span in plan.spans:
        if isinstance(span, LiveSpan):
            break
        key = span.build.key(fingerprint)
        if key not in entries:
            break
        keys.add(key)
    return keys
