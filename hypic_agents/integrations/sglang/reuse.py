"""What a server reused, as far as it says: it reports one number, and what was sent says what that number covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypic_agents.completion import ReuseReport, SpanReport, SpanState
from hypic_agents.core import Prompt
from hypic_agents.integrations.sglang.parts import CutPrompt
from hypic_agents.integrations.sglang.replies import Counts

PREFIX_MISS = "a stock server reuses prefixes only, and something before this segment is new"
NOT_REPORTED = "the server reports no cached tokens: launch it with --enable-cache-report"
NOTHING_REUSED = "the server reused nothing of it"
SENT_WHOLE = "sent as one piece, which the server neither caches nor reuses"


def prefix_report(prompt: Prompt | None, counts: Counts, *, ttft_s: float) -> ReuseReport:
    """Of a stock server: the first ``cached`` tokens were reused, exactly."""
    reused = min(counts.cached or 0, counts.prompt)
    spans = tuple(_prefix_spans(prompt, reused, counts)) if prompt is not None else ()
    return ReuseReport("prefix", counts.prompt, counts.prompt - reused, 0, reused, spans, ttft_s)


def parts_report(
    cut: CutPrompt, counts: Counts, warmed: Sequence[bytes], *, mode: str, ttft_s: float, build_s: float
) -> ReuseReport:
    """Of a HYPIC build: every part but the last could be reused.

    The server reports the sum; it is shared out over the parts by their lengths. ``warmed`` names the parts that were
    sent ahead for this request: what is reused of them was built for it.
    """
    cached = min(counts.cached or 0, counts.prompt)
    able = sum(part.num_tokens for part in cut.parts[:-1])
    share = min(1.0, cached / able) if able else 0.0
    cold = min(cached, int(share * sum(part.num_tokens for part in cut.parts[:-1] if part.key in warmed)))
    spans = tuple(_part_spans(cut, share, warmed, counts))
    return ReuseReport(mode, counts.prompt, counts.prompt - cached, cold, cached - cold, spans, ttft_s, build_s)


def _prefix_spans(prompt: Prompt, reused: int, counts: Counts) -> Iterator[SpanReport]:
    for span in prompt.spans:
        covered = max(0, min(span.end, reused) - span.start)
        reason = "" if covered else NOT_REPORTED if counts.cached is None else PREFIX_MISS
        segment = span.segment
        state: SpanState = "hit" if covered else "live"
        yield SpanReport(segment.kind, segment.source_id, span.start, span.end, state, covered, reason)


def _part_spans(cut: CutPrompt, share: float, warmed: Sequence[bytes], counts: Counts) -> Iterator[SpanReport]:
    at = 0
    for part in cut.parts:
        start, at = at, at + part.num_tokens
        if part.segment is None:
            continue
        composed = int(share * part.num_tokens)
        state: SpanState = "live" if not composed else "cold" if part.key in warmed else "hit"
        reason = "" if composed else NOT_REPORTED if counts.cached is None else NOTHING_REUSED
        yield SpanReport(part.segment.kind, part.segment.source_id, start, at, state, composed, reason)
