"""Builds of segments of other lengths than a benchmark's own: they show how seconds and bytes grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.workers.contract import BuildJob
from hypic_agents.runtime.workers.local import LocalPool

LENGTHS = (150, 2_400)


def sample_builds(
    engine: Engine, *, lengths: Sequence[int] = LENGTHS, repeats: int = 2, seed: int = 0
) -> list[dict[str, Any]]:
    """Build one segment of each length in this process, alone: ``tokens``, ``seconds`` (the fastest) and ``bytes``.

    On one thread, as the measured workers have it: all builds that costs are fitted to must be of one kind.

    Raises:
        InvalidInput: a length that the policy computes live.
    """
    pool = LocalPool(engine.model, engine.config.max_pass_tokens)
    found = []
    for at, length in enumerate(lengths):
        prompt = Prompts(Shape(1, length), engine.model.vocab_size, seed + at).shuffled()
        build = next((build for build in engine.plan(prompt).builds if not build.is_prefix), None)
        if build is None:
            raise InvalidInput(f"a segment of {length} tokens is live under this policy; use longer ones")
        # Alone, not behind the system prompt: that costs a few tokens' worth, and the checkpoint would have to be made.
        job = BuildJob(at, build.token_ids, build.head, build.map_from)
        with _one_thread():
            runs = [pool.compute([job])[0] for _ in range(repeats + 1)][1:]
        for one in runs:
            if one.error is not None:
                raise one.error
        fastest = min(runs, key=lambda one: one.build_s)
        nbytes = 0 if fastest.payload is None else fastest.payload.nbytes
        found.append({"tokens": job.num_tokens, "seconds": fastest.build_s, "bytes": nbytes})
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
