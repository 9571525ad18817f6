"""What the model loses under reuse, measured by the engine itself on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypic_agents.quality.questions import Item
from hypic_agents.quality.scoring import Verdict, clear_store, judge, score
from hypic_agents.quality.statistics import paired_gap, share
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.policy import PRESETS, ReusePolicy
from training.native.examples import Example
from training.native.model import Trainable, packed

_BLOCK = 32


def engine_of(trainable: Trainable, policy: ReusePolicy) -> Engine:
    """An engine over the weights as they are, with an empty store."""
    hf = trainable.hf
    config = EngineConfig(policy=policy, device=str(hf.device))
    return Engine(packed(hf), trainable.tokenizer, "in training", config, name=trainable.name)


def measure(trainable: Trainable, examples: Sequence[Example], policy: ReusePolicy) -> dict[str, Any]:
    """Full recompute, ``policy``, and the control in which live spans start from a zero state, on the same rows.

    Answers are scored teacher-forced: right where greedy decoding would give exactly them.

    Returns:
        ``full``, ``reuse`` and ``zero_state`` in points (hundredths) of right answers, ``gap`` of reuse in points with
        its 95 % interval ``low`` and ``high``, ``agreement`` (share of answer tokens with the same most likely token),
        ``kl`` (full recompute || reuse, nats an answer token), ``reused`` (share of prompt tokens) and ``rows``.
    """
    was_training = trainable.hf.training
    trainable.hf.eval()
    try:
        return _measure(engine_of(trainable, policy), examples, policy)
    finally:
        trainable.hf.train(was_training)


def _measure(engine: Engine, examples: Sequence[Example], policy: ReusePolicy) -> dict[str, Any]:
    items = [Item("held-out", example.prompt, example.answer_ids) for example in examples]
    modes = {"full": PRESETS["exact"], "reuse": policy, "zero_state": policy.with_(name="zero_state", compose="zero")}
    verdicts: dict[str, list[Verdict]] = {mode: [] for mode in modes}
    ends = engine.tokenizer.eos_token_ids
    for at in range(0, len(items), _BLOCK):
        block = items[at : at + _BLOCK]
        exact = score(engine, block, modes["full"])
        for mode, chosen in modes.items():
            logits = exact if mode == "full" else score(engine, block, chosen)
            verdicts[mode] += [judge(*row, ends) for row in zip(block, logits, exact, strict=True)]
        clear_store(engine)
    right = {mode: [verdict.right for verdict in made] for mode, made in verdicts.items()}
    gap = paired_gap(right["full"], right["reuse"])
    tokens = sum(len(item.answer_ids) for item in items)
    live = sum(engine.plan(item.prompt, policy).num_live for item in items)
    return {
        **{mode: 100 * share(values) for mode, values in right.items()},
        "gap": gap.points,
        "low": gap.low,
        "high": gap.high,
        "agreement": sum(verdict.agreements for verdict in verdicts["reuse"]) / tokens,
        "kl": sum(verdict.kl for verdict in verdicts["reuse"]) / tokens,
        "reused": 1 - live / sum(len(item.prompt) for item in items),
        "rows": len(items),
    }
