"""A calibration as plain data: for JSON, and as the evidence in the policy file."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from hypic_agents import __version__
from hypic_agents.quality.calibrate.choose import Assessment
from hypic_agents.quality.calibrate.forecast import prompts_needed
from hypic_agents.quality.calibrate.run import Calibration
from hypic_agents.quality.calibrate.validate import Validation
from hypic_agents.runtime.policy_file import PolicyFile


def row(one: Assessment) -> dict[str, Any]:
    """One candidate, flat."""
    return {
        "policy": one.policy.name,
        "live_share": one.live_share,
        "gap_points": one.gap.points,
        "gap_low": one.gap.low,
        "gap_high": one.gap.high,
        "bound_points": one.bound,
        "certainty": one.certainty,
        "lost": one.counts.lost,
        "won": one.counts.won,
        "agreement": one.agreement,
        "kl": one.kl,
        "verdict": one.verdict,
    }


def sentence(result: Calibration) -> str:
    """The choice and how sure it is, for people."""
    chosen, prompts = result.choice.chosen, len(result.trials)
    if not chosen.policy.exact:
        return (
            f"Chosen: {chosen.policy.name}. It computes {chosen.live_share:.0%} of the prompt tokens; another "
            f"{prompts} such prompts stay within {result.budget:g} points of full recompute with probability "
            f"{chosen.certainty:.1%}, and within {max(0.0, chosen.bound):.2f} points with {result.confidence:.0%}."
        )
    if len(result.choice.candidates) == 1:
        return "Chosen: exact. No candidate reuses anything of these prompts: they hold no segment to reuse."
    closest = min((one for one in result.choice.candidates if not one.policy.exact), key=lambda one: one.bound)
    text = (
        f"Chosen: exact (full recompute). No candidate stays within {result.budget:g} points with probability "
        f"{result.confidence:.0%}; the safest, {closest.policy.name}, stays within {closest.bound:.2f}."
    )
    needed = prompts_needed(result.budget, result.confidence) if result.budget else 0
    if prompts < needed:
        text += f" {prompts} prompts are few: a policy that changes no answer is accepted from {needed} prompts on."
    return text


def to_dict(result: Calibration) -> dict[str, Any]:
    """Everything, JSON-ready; ``rows`` is the table of candidates."""
    chosen = result.choice.chosen
    return {
        "policy": chosen.policy.name,
        "certainty": chosen.certainty,
        "gap_budget": result.budget,
        "confidence": result.confidence,
        "prompts": len(result.trials),
        "with_answers": sum(result.trials.answered),
        "prompt_tokens": sum(result.trials.prompt_lens),
        "sentence": sentence(result),
        "rows": [row(one) for one in result.choice.candidates],
        "reuse_nothing": [policy.name for policy in result.idle],
        "changed": [asdict(change) for change in result.changes],
        **({"validation": _validation(result.validation)} if result.validation else {}),
    }


def policy_file(result: Calibration, *, fingerprint: str, model: str) -> PolicyFile:
    """What the engine takes, with the evidence for people."""
    chosen = result.choice.chosen
    evidence = {
        "prompts": len(result.trials),
        "with_answers": sum(result.trials.answered),
        "gap_budget": result.budget,
        "confidence": result.confidence,
        **{name: value for name, value in row(chosen).items() if name not in ("policy", "verdict")},
        "made": datetime.now(UTC).date().isoformat(),
        "package_version": __version__,
        "candidates": [row(one) for one in result.choice.candidates],
        **({"validation": _validation(result.validation)} if result.validation else {}),
    }
    return PolicyFile(chosen.policy, fingerprint, model, evidence)


def _validation(validation: Validation) -> dict[str, Any]:
    return {
        "held": validation.num_held,
        "of": len(validation.splits),
        "heldout_prompts": validation.heldout,
        "points_per_answer": validation.points_per_answer,
        "splits": [asdict(split) for split in validation.splits],
    }
