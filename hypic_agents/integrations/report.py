"""The reuse report as plain data, as integrations put it beside an answer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from hypic_agents.completion import Completion, SpanReport

_COLD: Final = "not in the store yet: built for this request"


def reuse_report(completion: Completion) -> dict[str, Any]:
    """Totals in tokens and seconds; an entry a segment that says why it was missed, and one a text left out of them."""
    report = completion.report
    totals = {key: value for key, value in asdict(report).items() if key != "spans"}
    segments = [asdict(span) | {"reason": _reason(span)} for span in report.spans]
    volatile = [asdict(text) for text in report.volatile]
    builds = asdict(report.builds) | {"problems": list(report.builds.problems)}
    return totals | {
        "builds": builds,
        "reused_share": report.reused_share,
        "segments": segments,
        "volatile": volatile,
    }


def _reason(span: SpanReport) -> str:
    return span.reason or (_COLD if span.state == "cold" else "")
