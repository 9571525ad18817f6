"""Figure 3: where along a segment attention scores deviate from a full pass when the segment was built elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from torch import Tensor

from hypic_agents.bench.agreement import require_close
from hypic_agents.bench.paper.findings import Experiment, Finding, experiment, finding
from hypic_agents.bench.paper.probe import Scores, attention_scores, first_attention_layer
from hypic_agents.bench.paper.setup import Setup
from hypic_agents.bench.paper.states import UNLIMITED
from hypic_agents.core import Prompt
from hypic_agents.errors import HypicError
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.plan import ReusedSpan
from hypic_agents.runtime.policy import ReusePolicy

_SPLICE = ReusePolicy(name="alone, no seam", head_seam=0, tail_seam=0, condition_on_system=False)
POLICIES = (
    _SPLICE,
    _SPLICE.with_(name="alone, seam 8", head_seam=8),
    _SPLICE.with_(name="conditioned, no seam", condition_on_system=True),
    _SPLICE.with_(name="conditioned, seam 8", condition_on_system=True, head_seam=8),
)
# The paper shades the first and the last tenth of a segment.
_END_SHARE = 0.1
_CURVE_LEN = 64

Row = dict[str, Any]
# Of one segment: keys, raw scores and probabilities by position.
Profile = tuple[Tensor, Tensor, Tensor]


def run(setup: Setup) -> Experiment:
    """Deviation of keys, scores and probabilities by position in the segment, in the lowest full-attention layer.

    Raises:
        UnsupportedModel: no full-attention layer.
        HypicError: with everything live the scores differ from full recompute, or no segment was reused.
    """
    profiles: dict[str, list[Profile]] = defaultdict(list)
    with setup.load(setup.trained, "float32") as engine:
        mixer = first_attention_layer(engine)
        prompts = [asked.prompt for asked in setup.ask(engine, setup.sizes.prompts, setup.seed)]
        checked = 0.0
        for done, prompt in enumerate(prompts, 1):
            rows = len(prompt) - prompt.spans[-1].end
            full = attention_scores(engine, mixer, prompt, "exact", rows)
            live = attention_scores(engine, mixer, prompt, _SPLICE.with_(head_seam=UNLIMITED), rows)
            what = "attention scores behind an unlimited seam and of full recompute"
            checked = max(checked, require_close(what, live.raw, full.raw, engine.model.dtype))
            for policy in POLICIES:
                reused = attention_scores(engine, mixer, prompt, policy, rows)
                profiles[policy.name] += _profiles(engine, prompt, reused, full)
            setup.progress("attention deviation", done, len(prompts))
    rows_of = [_row(policy.name, profiles[policy.name]) for policy in POLICIES]
    return experiment(
        "Deviation of attention along a segment",
        "Figure 3",
        f"{setup.trained}: layer {mixer.layer_idx}, all heads, {len(prompts)} prompts; rows are the question's tokens, "
        "columns the segments'. Theirs: Qwen3.5-35B-A3B, layer 3, head 2, one prompt of 254 tokens, shown as a picture",
        _findings({row["policy"]: row for row in rows_of}),
        {"Deviation by zone": rows_of, "Deviation by position": _curve(profiles)},
        {"unlimited_seam_and_exact": checked},
    )


def _profiles(engine: Engine, prompt: Prompt, found: Scores, full: Scores) -> Iterator[Profile]:
    """One profile for every segment that any policy here reuses, over all of its tokens."""
    key = ((found.keys - full.keys).flatten(1).norm(dim=-1) / full.keys.flatten(1).norm(dim=-1)).cpu()
    raw = (found.raw - full.raw).abs().mean((0, 1)).cpu()
    probability = (found.probabilities - full.probabilities).abs().mean((0, 1)).cpu()
    for one in engine.plan(prompt, _SPLICE).spans:
        if isinstance(one, ReusedSpan) and not one.build.is_prefix:
            span = slice(one.start, one.end)
            yield key[span], raw[span], probability[span]


def _row(policy: str, profiles: Sequence[Profile]) -> Row:
    if not profiles:
        raise HypicError("no figure is reported: the prompts hold no segment long enough to be reused")
    row: Row = {"policy": policy}
    for i, name in enumerate(("key", "score", "probability")):
        head, middle, tail = [], [], []
        for profile in profiles:
            values = profile[i].tolist()
            end = max(1, round(_END_SHARE * len(values)))
            head.append(fmean(values[:end]))
            middle.append(fmean(values[end:-end]))
            tail.append(fmean(values[-end:]))
        row |= {f"{name}_head": fmean(head), f"{name}_middle": fmean(middle), f"{name}_tail": fmean(tail)}
    return row


def _curve(profiles: dict[str, list[Profile]]) -> list[Row]:
    """Mean over segments by position from the head, as far as most segments reach."""
    rows = []
    for position in range(_CURVE_LEN):
        row: Row = {"position": position}
        for policy, made in profiles.items():
            values = [profile[1][position].item() for profile in made if len(profile[1]) > position]
            row[policy] = fmean(values) if values else None
        rows.append(row)
    return rows


def _findings(rows: dict[str, Row]) -> list[Finding]:
    bare, repaired = rows["alone, no seam"], rows["alone, seam 8"]
    conditioned = rows["conditioned, no seam"]
    head = bare["score_head"] / bare["score_middle"]
    tail = bare["score_tail"] / bare["score_middle"]
    mended = 1 - repaired["score_head"] / bare["score_head"]
    return [
        finding("scores: first tenth over middle, built alone", "sharply higher", head, head > 1.5, "over 1.5"),
        finding("scores: last tenth over middle, built alone", "higher", tail, tail > 1, "over 1"),
        finding("keys: first tenth over middle, built alone", None, bare["key_head"] / bare["key_middle"], None),
        finding(
            "share of the first tenth's deviation that a seam of 8 mends", "most", mended, mended > 0.5, "over half"
        ),
        finding(
            "share of the first tenth's deviation that conditioned builds mend",
            None,
            1 - conditioned["score_head"] / bare["score_head"],
            None,
        ),
        finding(
            "share of the middle's deviation that conditioned builds mend",
            None,
            1 - conditioned["score_middle"] / bare["score_middle"],
            None,
        ),
    ]
