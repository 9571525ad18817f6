"""Prompts whose segments are of several kinds."""

from __future__ import annotations

import random
from dataclasses import replace

from hypic_agents.core import Prompt
from tests.runtime.models import make_prompt, segment_ids

KINDS = ("document", "tool", "memory")


def mixed_prompt(seed: int, *, system: bool = True) -> Prompt:
    """Segments of three kinds in turn, long enough to be reused, behind a system segment."""
    rng = random.Random(seed)
    parts = [segment_ids(rng, rng.randrange(30, 90)) for _ in range(rng.randrange(1, 7))]
    prompt = make_prompt(parts, system=segment_ids(rng, 20) if system else ())
    documents = [span for span in prompt.spans if span.segment.kind == "document"]
    kinds = {span.start: KINDS[i % 3] for i, span in enumerate(documents)}
    spans = [
        replace(span, segment=replace(span.segment, kind=kinds.get(span.start, span.segment.kind)))
        for span in prompt.spans
    ]
    return replace(prompt, spans=tuple(spans))
