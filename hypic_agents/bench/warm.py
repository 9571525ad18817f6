"""Time to first token with warm segments in changing order, against full recompute and prefix caching."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hypic_agents.bench.agreement import require_close, untouched_copy
from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.bench.timing import Progress, Timings, interleave
from hypic_agents.completion import Completion
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import HypicError, InvalidPolicy
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.policy import ReusePolicy

_FIRST_TOKEN = SamplingParams(max_tokens=1)
_UNLIMITED = 1 << 30


def run(engine: Engine, *, repeats: int, seed: int, progress: Progress, shape: Shape | None = None) -> dict[str, Any]:
    """Time the same prompts under full recompute, prefix caching, the engine's own policy and plain transformers.

    Every repeat has a fresh order of the documents, the same for all. Entries are built before, from prompts of one
    document each.

    Args:
        engine: Its default policy is the one that is measured, as mode ``hypic``.
        repeats: Timed repeats behind one untimed.
        seed: Of tokens and orders.
        progress: Told of stages and repeats.
        shape: Sizes of the prompts.

    Raises:
        HypicError: the ways to compute one prompt disagree, or a segment was not warm.
    """
    policy = engine.config.default_policy
    if policy.exact or policy.prefix:
        raise InvalidPolicy(f"policy {policy.name!r} composes no segments; there is nothing to measure")
    shape = shape or Shape()
    prompts = Prompts(shape, engine.model.vocab_size, seed)
    engine.warm(prompts.one_each(), policy)
    bench = _Bench(engine, untouched_copy(engine.model.hf), policy)
    checked = bench.check(prompts.shuffled())
    progress("checking agreement", 1, 1)

    requests = {repeat: prompts.shuffled() for repeat in range(-1, repeats)}
    last: list[Completion] = []
    modes: dict[str, Callable[[int], object]] = {
        "exact": lambda r: bench.generate(requests[r], "exact"),
        "prefix": lambda r: bench.generate(requests[r], "prefix"),
        "hypic": lambda r: last.append(bench.generate(requests[r], policy)),
        "transformers": lambda r: bench.transformers(requests[r]),
    }
    timings = interleave(modes, repeats=repeats, progress=progress, stage="timing prompts")
    for completion in last:
        _require_hits(completion)
    return _result(timings, last[-1], shape, engine, policy) | {"agreement": checked}


@dataclass(frozen=True, slots=True)
class _Bench:
    engine: Engine
    plain: Any
    policy: ReusePolicy

    def generate(self, prompt: Prompt, policy: ReusePolicy | str) -> Completion:
        return self.engine.generate(prompt, _FIRST_TOKEN, policy)

    @torch.inference_mode()
    def transformers(self, prompt: Prompt) -> Tensor:
        """Next-token logits ``[vocab]`` of the untouched model; ready on the CPU."""
        ids = torch.tensor([prompt.token_ids], device=self.plain.device)
        logits: Tensor = self.plain(input_ids=ids, use_cache=True, logits_to_keep=1).logits[0, -1]
        return logits.cpu()

    def check(self, prompt: Prompt) -> dict[str, float]:
        """Relative errors between ways that must agree on one prompt."""
        exact = self._logits(prompt, "exact")
        unlimited = self.policy.with_(name="unlimited", head_seam=_UNLIMITED)
        dtype = self.engine.model.dtype
        return {
            "exact_and_transformers": require_close(
                "full recompute and transformers", exact, self.transformers(prompt), dtype
            ),
            "unlimited_seam_and_exact": require_close(
                "an unlimited seam and full recompute", self._logits(prompt, unlimited), exact, dtype
            ),
        }

    def _logits(self, prompt: Prompt, policy: ReusePolicy | str) -> Tensor:
        return self.engine.score([prompt], [(0,)], policy)[0][-1]


def _require_hits(completion: Completion) -> None:
    states = [span.state for span in completion.report.spans]
    if any(state != "hit" for state in states):
        raise HypicError(f"{len(states) - states.count('hit')} of {len(states)} segments were not warm")


def _result(
    timings: dict[str, Timings], completion: Completion, shape: Shape, engine: Engine, policy: ReusePolicy
) -> dict[str, Any]:
    ours = timings["hypic"].median
    ideal = completion.report.prompt_tokens / completion.report.live_tokens
    speedup = timings["exact"].median / ours
    rows = [
        {
            "mode": name,
            "ttft_s": timing.median,
            "fastest_s": timing.spread[0],
            "slowest_s": timing.spread[1],
            "speedup": timings["exact"].median / timing.median,
        }
        for name, timing in timings.items()
    ]
    return {
        "rows": rows,
        "ttft_s": {name: timing.median for name, timing in timings.items()},
        "ttft_spread_s": {name: list(timing.spread) for name, timing in timings.items()},
        "speedup_vs_full": speedup,
        "speedup_vs_prefix": timings["prefix"].median / ours,
        "speedup_vs_transformers": timings["transformers"].median / ours,
        "exact_vs_transformers": timings["transformers"].median / timings["exact"].median,
        "ideal_speedup": ideal,
        "efficiency": speedup / ideal,
        "policy": policy.name,
        "prompt_tokens": completion.report.prompt_tokens,
        "live_tokens": completion.report.live_tokens,
        "documents": shape.num_documents,
        "document_tokens": shape.document_len,
        "repeats": len(timings["hypic"].seconds),
        "params": sum(p.numel() for p in engine.model.hf.parameters()),
    }
