"""Table 2: what naive addition of end states loses under a fixed decay, exactly and through our affine maps.

Behind a segment C1, a segment C2 of L tokens leaves ``gamma^L S_C1 + S_C2``. Adding the two end states instead is off
by ``(1 - gamma^L) S_C1``, so relative to ``S_C1`` by ``1 - gamma^L``, whatever the tokens are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hypic_agents.bench.agreement import require_close
from hypic_agents.bench.paper.findings import Experiment, experiment, finding
from hypic_agents.bench.paper.setup import Setup
from hypic_agents.runtime.linear.affine import compose
from hypic_agents.runtime.linear.recurrence import affine_map_of, recurrence

DECAY_EXPONENTS = (5, 7, 10)
LENGTHS = (256, 512, 1024)
# The whole table, by exponent: its digits are those of the paper.
THEIRS = {5: (1.000, 1.000, 1.000), 7: (0.866, 0.982, 1.000), 10: (0.221, 0.394, 0.632)}
_FIRST_LEN = 64
_HEAD_DIM = 8


def closed_form(exponent: int, length: int) -> float:
    """``1 - gamma^length`` for ``gamma = 1 - 2^-exponent``."""
    return -math.expm1(length * math.log1p(-(2.0**-exponent)))


def run(setup: Setup) -> Experiment:
    """Every cell of the table, by the closed form, by composed maps and by running the recurrence token by token.

    Raises:
        HypicError: the three disagree.
    """
    generator = torch.Generator().manual_seed(setup.seed)
    first_k, first_v = _inputs(_FIRST_LEN, generator)
    first = affine_map_of(first_k, first_v, _log_decays(_FIRST_LEN))
    columns, agreement = [], 0.0
    for done, length in enumerate(LENGTHS, 1):
        k, v = _inputs(length, generator)
        second = affine_map_of(k, v, _log_decays(length))
        both_k, both_v = torch.cat((first_k, k), dim=1), torch.cat((first_v, v), dim=1)
        _, ran = recurrence(torch.zeros_like(both_k), both_k, both_v, _log_decays(_FIRST_LEN + length))
        composed = compose(first, second).end_state
        agreement = max(agreement, require_close("composed maps and the recurrence", composed, ran, ran.dtype))
        missed = _norm(first.end_state + second.end_state - composed) / _norm(first.end_state)
        exact = missed.new_tensor([closed_form(exponent, length) for exponent in DECAY_EXPONENTS])
        agreement = max(agreement, require_close("added states and the closed form", missed, exact, ran.dtype))
        columns.append(missed.tolist())
        setup.progress("fixed decay", done, len(LENGTHS))
    findings = [
        finding(
            f"gamma = 1 - 2^-{exponent}, {length} tokens",
            THEIRS[exponent][column],
            columns[column][row],
            round(columns[column][row], 3) == THEIRS[exponent][column],
            "the same to three digits",
        )
        for row, exponent in enumerate(DECAY_EXPONENTS)
        for column, length in enumerate(LENGTHS)
    ]
    return experiment(
        "Naive addition under a fixed decay, error relative to the first segment's state",
        "Table 2 and Equation 5",
        f"random keys and values in float64, {_FIRST_LEN} tokens before the segment, head size {_HEAD_DIM}",
        findings,
        {},
        {"closed_form_composed_maps_and_recurrence": agreement},
    )


def _inputs(length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Keys and values ``[1, length, heads, dim]``, one head a decay."""
    k, v = torch.randn(2, 1, length, len(DECAY_EXPONENTS), _HEAD_DIM, generator=generator, dtype=torch.float64)
    return k, v


def _log_decays(length: int) -> Tensor:
    decays = torch.tensor([math.log1p(-(2.0**-exponent)) for exponent in DECAY_EXPONENTS], dtype=torch.float64)
    return decays.expand(1, length, -1)


def _norm(states: Tensor) -> Tensor:
    """``[1, heads, K, V]`` to ``[heads]``."""
    norms: Tensor = torch.linalg.vector_norm(states.flatten(2), dim=-1).squeeze(0)
    return norms
