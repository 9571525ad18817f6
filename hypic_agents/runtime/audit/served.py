"""What was really served to an audited request, kept small, and how far it is from full recompute."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

# Log-probabilities kept of every token; what lies outside them is kept as one sum.
TOP = 64
# Tokens judged of every answer: its first ones. Bounds memory and the cost of an audit.
MOST_TOKENS = 64
_WORST_KL = 50.0
_LEAST = -100.0


class Sampler:
    """Which requests are audited: the same ones for the same seed and order of requests.

    A hash decides, not every n-th request, so that traffic with a period is sampled evenly.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._seed = seed
        self._count = 0

    def next(self) -> bool:
        """Whether the next request is audited."""
        self._count += 1
        digest = hashlib.blake2b(f"{self._seed}:{self._count}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") < self._share * 2**64


@dataclass(slots=True)
class Served:
    """The tokens of one answer and the distributions they came from.

    Attributes:
        constrained: A grammar narrowed the choice, so the largest logit says nothing about the answer.
        token_ids: The answer's first tokens, the end of the turn included.
        judged: Which of them came from logits; a grammar left no choice about the others.
        top_ids, top_logprobs: Per judged token ``[TOP]``: the largest logits' ids, largest first, and their
            log-probabilities (int64 and float64, on the CPU).
    """

    constrained: bool = False
    token_ids: list[int] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)
    top_ids: list[Tensor] = field(default_factory=list)
    top_logprobs: list[Tensor] = field(default_factory=list)

    def add(self, token_id: int, logits: Tensor) -> None:
        """Take one token and the logits ``[vocab]`` that it was chosen from."""
        logprobs = logits.float().log_softmax(-1)
        values, ids = logprobs.topk(min(TOP, logprobs.shape[-1]))
        self.judged.append(len(self.token_ids))
        self.token_ids.append(token_id)
        self.top_ids.append(ids.cpu())
        self.top_logprobs.append(values.cpu().double().clamp_min(_LEAST))

    def skip(self, token_ids: Sequence[int]) -> None:
        """Take tokens that came from no logits."""
        self.token_ids.extend(token_ids)

    def under(self, logits: Tensor) -> Served:
        """The same tokens as if they had been chosen from ``logits [tokens, vocab]``."""
        other = Served(self.constrained)
        for index in self.judged:
            other.skip(self.token_ids[len(other.token_ids) : index])
            other.add(self.token_ids[index], logits[index])
        return other


@dataclass(frozen=True, slots=True)
class Divergence:
    """One answer against full recompute, each token behind the same earlier tokens.

    Attributes:
        tokens: How many were compared.
        agreed: Those with the same largest logit, ties counted as agreement.
        kl: Mean KL(full recompute || served) a token, in nats. A lower bound: tokens outside the kept ones are compared
            as one group.
        changed: Greedy decoding under full recompute gives another answer.
    """

    tokens: int
    agreed: int
    kl: float
    changed: bool

    def exceeds(self, max_kl: float) -> bool:
        """Whether the answer counts as changed: another greedy answer, or a mean KL above ``max_kl``."""
        return self.changed or self.kl > max_kl


def tie_of(dtype: torch.dtype) -> float:
    """Two tokens whose log-probabilities differ by no more than this (nats) are equally good to a model of ``dtype``.

    The logits of low precision lie an eighth apart where they are largest.
    """
    return 0.01 if dtype.itemsize >= 4 else 0.2


def compare(served: Served, truth: Tensor, tie: float) -> Divergence:
    """``served`` against the logits ``[tokens, vocab]`` of full recompute; see :func:`tie_of`."""
    ids, kept = torch.stack(served.top_ids), torch.stack(served.top_logprobs)
    logprobs = truth[served.judged].cpu().double().log_softmax(-1).clamp_min(_LEAST)
    expected = logprobs.gather(-1, ids)
    total = (expected.exp() * (expected - kept)).sum(-1)
    if ids.shape[-1] < truth.shape[-1]:
        p_rest, q_rest = (_rest(x) for x in (expected, kept))
        total += p_rest * (p_rest.log() - q_rest.log())
    kl = total.clamp_min(0.0).mean().item()
    behind = logprobs.max(-1).values - expected[:, 0]
    agreed = int((behind <= tie).sum().item())
    tokens = len(served.judged)
    return Divergence(
        tokens=tokens,
        agreed=agreed,
        kl=_WORST_KL if math.isnan(kl) else min(kl, _WORST_KL),
        changed=agreed < tokens and not served.constrained,
    )


def _rest(logprobs: Tensor) -> Tensor:
    """Probability ``[tokens]`` of everything outside ``logprobs [tokens, kept]``."""
    # Probabilities were rounded in float32: less than this is noise.
    return (1 - logprobs.exp().sum(-1)).clamp_min(1e-7)
