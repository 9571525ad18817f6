"""Figure 13: what the width of the seam buys, on questions with known answers; and what naive addition loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from torch import Tensor

from hypic_agents.bench.agreement import require_close
from hypic_agents.bench.paper.findings import Experiment, Finding, experiment, finding
from hypic_agents.bench.paper.setup import Asked, Setup
from hypic_agents.bench.paper.states import UNLIMITED
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.policy import PRESETS, ReusePolicy

# ROUGE-L of Qwen3.5-122B-A10B on GovReport: without a seam, at a width of 8, under full recompute.
THEIR_CURVE = (0.1631, 0.1671, 0.168)
THEIR_SHARE_MENDED = (THEIR_CURVE[1] - THEIR_CURVE[0]) / (THEIR_CURVE[2] - THEIR_CURVE[0])
# Points of task score under full recompute, mean of 16 cells: first version of the paper.
THEIR_ADDITION_LOSS = 25.3
THEIR_LOSS = 3.34
ALONE, BOTH_ENDS, CONDITIONED = "alone, head seam", "alone, both ends", "conditioned, head seam"
_DEFAULT_WIDTH, _WIDE = 8, 32
_PASS_PROMPTS = 8

Row = dict[str, Any]


def run(setup: Setup) -> Experiment:
    """Distance to full recompute on the answers' tokens, by seam width and by the way segments are built.

    Raises:
        HypicError: an unlimited seam differs from full recompute, or a cold prompt from a warm one.
    """
    with setup.load(setup.trained, "float32") as engine:
        asked = setup.ask(engine, setup.sizes.questions, setup.seed)
        exact = _score(engine, asked, PRESETS["exact"])
        agreement = _check(engine, asked[:_PASS_PROMPTS], exact[:_PASS_PROMPTS])
        cases = [("full recompute", PRESETS["exact"])]
        cases += [(built, policy) for width in setup.sizes.seams for built, policy in _policies(width)]
        cases += [("naive addition", PRESETS["addition"])]
        rows, right = [], {}
        for done, (built, policy) in enumerate(cases, 1):
            scored = _score(engine, asked, policy)
            right[built, _width(policy)] = [_is_right(one, logits) for one, logits in zip(asked, scored, strict=True)]
            live = sum(engine.plan(one.prompt, policy).num_live for one in asked)
            rows.append(
                {"built": built, "width": _width(policy)}
                | _closeness(exact, scored)
                | {"right_answers": fmean(right[built, _width(policy)])}
                | {"live": live / sum(len(one.prompt) for one in asked)}
            )
            setup.progress("seam sweep", done, len(cases))
    return experiment(
        "Width of the seam against closeness to full recompute",
        "Figure 13 and Section 6.2",
        f"{setup.trained}: {len(asked)} questions over documents, given answers scored token by token. Theirs: ROUGE-L "
        "of Qwen3.5-122B-A10B on GovReport and of Qwen3.5-35B-A3B on MultiNews; losses over four models and data sets",
        [*_findings(rows), *_losses(right)],
        {"Seam width": rows},
        agreement,
    )


def _policies(width: int) -> list[tuple[str, ReusePolicy]]:
    """The three shapes of a seam: the published code's, the one that the paper's first version describes, and ours."""
    alone = ReusePolicy(name=f"seam {width}", head_seam=width, tail_seam=0, condition_on_system=False)
    return [
        (ALONE, alone),
        (BOTH_ENDS, alone.with_(tail_seam=width)),
        (CONDITIONED, alone.with_(condition_on_system=True)),
    ]


def _score(engine: Engine, asked: Sequence[Asked], policy: ReusePolicy) -> list[Tensor]:
    logits: list[Tensor] = []
    for at in range(0, len(asked), _PASS_PROMPTS):
        group = asked[at : at + _PASS_PROMPTS]
        logits += engine.score([one.prompt for one in group], [one.answer_ids for one in group], policy)
    return logits


def _check(engine: Engine, asked: Sequence[Asked], exact: Sequence[Tensor]) -> dict[str, float]:
    dtype = engine.model.dtype
    live = _score(engine, asked, PRESETS["hypic"].with_(name="unlimited", head_seam=UNLIMITED))
    engine.store.evict(engine.store.stats().held_bytes)
    cold, warm = (_score(engine, asked, PRESETS["hypic"]) for _ in range(2))

    def largest(what: str, found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
        return max(require_close(what, a, b, dtype) for a, b in zip(found, expected, strict=True))

    return {
        "unlimited_seam_and_exact": largest("an unlimited seam and full recompute", live, exact),
        "warm_and_cold": largest("warm and cold segments", warm, cold),
    }


def _width(policy: ReusePolicy) -> int | None:
    """Width of a policy of the sweep; the baselines have none."""
    return policy.head_seam if policy.name.startswith("seam") else None


def _is_right(one: Asked, logits: Tensor) -> bool:
    return tuple(logits.argmax(-1).tolist()) == one.answer_ids


def _closeness(exact: Sequence[Tensor], scored: Sequence[Tensor]) -> Row:
    kl, agreed, tokens = 0.0, 0, 0
    for truth, logits in zip(exact, scored, strict=True):
        true_log, log = truth.double().log_softmax(-1), logits.double().log_softmax(-1)
        kl += (true_log.exp() * (true_log - log)).sum().item()
        agreed += int((logits.argmax(-1) == truth.argmax(-1)).sum())
        tokens += len(truth)
    return {"kl": max(0.0, kl / tokens), "top1_agreement": agreed / tokens}


def _findings(rows: Sequence[Row]) -> list[Finding]:
    at = {(row["built"], row["width"]): row for row in rows}
    findings = []
    for built in (ALONE, BOTH_ENDS, CONDITIONED):
        bare, usual, wide = (at[built, width] for width in (0, _DEFAULT_WIDTH, _WIDE))
        mended = 1 - usual["kl"] / max(bare["kl"], 1e-12)
        more = 1 - wide["kl"] / max(usual["kl"], 1e-12)
        in_paper = built != CONDITIONED
        findings += [
            finding(
                f"{built}: share of the error without a seam that a width of 8 mends",
                THEIR_SHARE_MENDED if in_paper else None,
                mended,
                mended > 0.5 if in_paper else None,
                "more than half" if in_paper else "",
            ),
            finding(
                f"{built}: share of what is left at 8 that a width of 32 mends",
                "none to speak of" if in_paper else None,
                more,
                more < 0.5 if in_paper else None,
                "less than half" if in_paper else "",
            ),
        ]
    naive, bare = at["naive addition", None], at[ALONE, 0]
    return [
        *findings,
        finding(
            "KL of naive addition over KL of composing, both without a seam",
            "over 1",
            naive["kl"] / max(bare["kl"], 1e-12),
            naive["kl"] > bare["kl"],
            "composing is closer",
        ),
    ]


def _losses(right: Mapping[tuple[str, int | None], Sequence[bool]]) -> list[Finding]:
    """Points of score, judged only where they are more than the noise of so many questions."""
    full, naive, reused = right["full recompute", None], right["naive addition", None], right[ALONE, _DEFAULT_WIDTH]
    lost, lost_naive = (100 * (fmean(full) - fmean(answers)) for answers in (reused, naive))
    rule = "by over two standard errors"
    return [
        finding(
            "points of score lost by naive addition (more than by composing)",
            THEIR_ADDITION_LOSS,
            lost_naive,
            _beyond(lost_naive - lost, naive, reused),
            rule,
        ),
        finding(
            "points of score lost at width 8, built alone (fewer than theirs)",
            THEIR_LOSS,
            lost,
            _beyond(THEIR_LOSS - lost, full, reused),
            rule,
        ),
    ]


def _beyond(margin: float, some: Sequence[bool], others: Sequence[bool]) -> bool | None:
    """Whether a margin in points is positive; None within two standard errors of the paired difference."""
    changed = sum(a != b for a, b in zip(some, others, strict=True))
    noise = 200 * max(1, changed) ** 0.5 / len(some)
    return None if abs(margin) <= noise else margin > 0
