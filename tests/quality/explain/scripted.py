"""An engine whose answers are written down: what it says depends on the plan alone, never on weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hypic_agents.completion import Completion, ReuseReport, Usage
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.runtime.engine import GREEDY, Engine
from hypic_agents.runtime.plan import Plan, ReusedSpan

PREFERENCE = 5.0

# The answer's tokens with the one that ends it, out of the plan.
Script = Callable[[Plan], tuple[int, ...]]


class Scripted(Engine):
    """Answers each prompt as its script says, by the prompt's token ids."""

    scripts: Mapping[tuple[int, ...], Script]

    def generate_batch(
        self, prompts: Sequence[Prompt], sampling: SamplingParams = GREEDY, policy: Any = None
    ) -> list[Completion]:
        made = []
        for prompt in prompts:
            ids = self.scripts[prompt.token_ids](self.plan(prompt, policy))
            ended = ids[-1] in self.tokenizer.eos_token_ids and len(ids) <= sampling.max_tokens
            told = ids[:-1] if ended else ids[: sampling.max_tokens]
            report = ReuseReport("scripted", len(prompt), len(prompt), 0, 0)
            text, reason = self.tokenizer.decode(told), "stop" if ended else "length"
            made.append(Completion(text, told, reason, Usage(len(prompt), len(told)), report))  # type: ignore[arg-type]
        return made

    def score(self, prompts: Sequence[Prompt], answers: Sequence[Sequence[int]], policy: Any = None) -> list[Tensor]:
        scored = []
        for prompt, answer in zip(prompts, answers, strict=True):
            told = self.scripts[prompt.token_ids](self.plan(prompt, policy))[: len(answer)]
            logits = torch.zeros(len(answer), self.model.vocab_size)
            logits[torch.arange(len(told)), torch.tensor(told)] = PREFERENCE
            scored.append(logits)
        return scored


def scripted(engine: Engine, scripts: Mapping[tuple[int, ...], Script]) -> Scripted:
    one = Scripted(engine.model, engine.tokenizer, engine.fingerprint, engine.config)
    one.scripts = scripts
    return one


def head_of(plan: Plan, source_id: str) -> int | None:
    """The head seam with which a segment is composed; None if it is live."""
    heads = [one.build.head for one in plan.spans if isinstance(one, ReusedSpan) and one.build.source_id == source_id]
    return heads[0] if heads else None
