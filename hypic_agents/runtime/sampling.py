"""From logits to the next token: greedy, temperature, top-p, each request with its own seed and grammar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hypic_agents.core import SamplingParams
from hypic_agents.errors import InvalidInput

# Logits divided by less may leave the range of float32.
MIN_TEMPERATURE: Final = 1e-8


class TokenMask(Protocol):
    """Which tokens may come next."""

    @property
    def forced(self) -> int | None:
        """The only one that may, where that is known without looking at all of them."""

    def allows(self, token_id: int) -> bool:
        """Whether this one may: much cheaper than all of them."""

    def fill(self, row: NDArray[np.int32]) -> None:
        """Write them into ``row [words]``: bit ``i % 32`` of word ``i // 32`` is token ``i``."""


def mask_logits(logits: Tensor, masks: Sequence[TokenMask]) -> Tensor:
    """``logits [n, vocab]`` with minus infinity, in place, where a row's mask forbids the token."""
    words = np.empty((len(masks), (logits.shape[-1] + 31) // 32), np.int32)
    for row, mask in zip(words, masks, strict=True):
        mask.fill(row)
    np.invert(words, out=words)
    bits = np.unpackbits(words.view(np.uint8), axis=1, count=logits.shape[-1], bitorder="little")
    return logits.masked_fill_(torch.from_numpy(bits.view(np.bool_)).to(logits.device), float("-inf"))


def check_sampling(params: SamplingParams) -> None:
    """Raises InvalidInput where a value is out of range."""
    if params.max_tokens < 1:
        raise InvalidInput(f"max_tokens={params.max_tokens}: use 1 or more")
    if params.temperature != 0 and not MIN_TEMPERATURE <= params.temperature < math.inf:
        raise InvalidInput(f"temperature={params.temperature}: use 0 (greedy), or a number from {MIN_TEMPERATURE:g} on")
    if not 0 < params.top_p <= 1:
        raise InvalidInput(f"top_p={params.top_p}: use a value above 0 and at most 1")
    if any(not text for text in params.stop):
        raise InvalidInput("stop holds an empty string, which every text contains")


def make_generator(params: SamplingParams) -> torch.Generator | None:
    """The request's own random source; None when it is greedy."""
    if params.temperature == 0:
        return None
    generator = torch.Generator()
    if params.seed is None:
        generator.seed()
    else:
        generator.manual_seed(params.seed)
    return generator


def sample(
    logits: Tensor,
    params: Sequence[SamplingParams],
    sources: Sequence[torch.Generator | None],
    masks: Sequence[TokenMask | None],
) -> list[int]:
    """One token a row of ``logits [n, vocab]``.

    Draws happen on the CPU, so a seed gives one answer on any device. A greedy row whose likeliest token is allowed
    needs no mask: that token is the likeliest of the allowed ones too. A forced token needs no draw either.
    """
    chosen: list[int] = logits.argmax(-1).tolist()
    drawn = {i: logits[i] for i, source in enumerate(sources) if source is not None}
    held: dict[int, TokenMask] = {}
    for i, mask in enumerate(masks):
        forced = mask.forced if mask is not None else None
        if forced is not None:
            chosen[i] = forced
            drawn.pop(i, None)
        elif mask is not None and (i in drawn or not mask.allows(chosen[i])):
            held[i] = mask
    if held:
        masked = mask_logits(logits[list(held)], list(held.values()))
        for i, row, token in zip(held, masked, masked.argmax(-1).tolist(), strict=True):
            chosen[i] = token
            if i in drawn:
                drawn[i] = row
    for i, row in drawn.items():
        source = sources[i]
        assert source is not None
        chosen[i] = _draw(row, params[i], source)
    return chosen


def _draw(logits: Tensor, params: SamplingParams, source: torch.Generator) -> int:
    scores = logits.float().cpu() / params.temperature
    order = scores.argsort(descending=True)
    probabilities = scores[order].softmax(-1)
    # Keep the smallest set whose mass reaches top_p: a token stays if the mass before it is below top_p.
    outside = probabilities.cumsum(-1) - probabilities >= params.top_p
    probabilities = probabilities.masked_fill(outside, 0.0)
    return int(order[torch.multinomial(probabilities, 1, generator=source)].item())
