"""What was served against full recompute, and which requests are looked at."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.runtime.audit.served import TOP, Divergence, Sampler, Served, tie_of
from hypic_agents.runtime.audit.served import compare as compare_within

VOCAB = 300


def compare(served: Served, truth: torch.Tensor) -> Divergence:
    return compare_within(served, truth, tie_of(torch.float32))


def logits(seed: int, tokens: int = 4, scale: float = 3.0) -> torch.Tensor:
    return torch.randn(tokens, VOCAB, generator=torch.Generator().manual_seed(seed)) * scale


def chosen_from(token_ids: list[int], rows: torch.Tensor, *, constrained: bool = False) -> Served:
    served = Served(constrained)
    for token_id, row in zip(token_ids, rows, strict=True):
        served.add(token_id, row)
    return served


def greedy(rows: torch.Tensor) -> list[int]:
    return rows.argmax(-1).tolist()


def full_kl(truth: torch.Tensor, other: torch.Tensor) -> float:
    p, q = truth.double().log_softmax(-1), other.double().log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).mean().item()


def test_the_same_logits_do_not_diverge() -> None:
    rows = logits(1)
    found = compare(chosen_from(greedy(rows), rows), rows + 7.0)  # logits are free up to a constant
    assert (found.tokens, found.agreed, found.changed) == (4, 4, False)
    assert found.kl < 1e-6


@given(st.integers(0, 1000), st.floats(0.0, 3.0))
def test_the_kept_part_bounds_the_true_divergence_from_below(seed: int, noise: float) -> None:
    truth = logits(seed)
    other = truth + noise * logits(seed + 5000, scale=1.0)
    found = compare(chosen_from(greedy(other), other), truth)
    assert found.kl <= full_kl(truth, other) + 1e-6
    assert found.kl >= 0.3 * full_kl(truth, other) - 1e-6


def test_a_vocabulary_that_is_kept_whole_gives_the_true_divergence() -> None:
    truth, other = logits(1)[:, :TOP], logits(2)[:, :TOP]
    assert compare(chosen_from(greedy(other), other), truth).kl == pytest.approx(full_kl(truth, other), abs=1e-6)


def test_the_certain_opposite_shows_although_the_right_token_was_not_kept() -> None:
    truth, other = torch.zeros(1, VOCAB), torch.zeros(1, VOCAB)
    truth[0, 5] = 40.0
    other[0, :TOP] = 40.0
    other[0, 5] = 0.0
    found = compare(chosen_from([0], other), truth)
    assert found.kl > 10
    assert found.changed


def test_a_tie_is_no_change() -> None:
    truth = torch.zeros(1, VOCAB)
    truth[0, :2] = torch.tensor([10.0, 9.995])
    other = truth.flip(-1).flip(-1).clone()
    other[0, 1] = 10.01
    assert compare(chosen_from([1], other), truth).changed is False
    truth[0, 0] = 10.1
    assert compare(chosen_from([1], other), truth).changed is True
    assert compare_within(chosen_from([1], other), truth, tie_of(torch.bfloat16)).changed is False


def test_under_a_grammar_only_the_distribution_counts() -> None:
    truth, other = logits(1), logits(2)
    free = compare(chosen_from(greedy(other), other), truth)
    bound = compare(chosen_from(greedy(other), other, constrained=True), truth)
    assert free.changed and not bound.changed
    assert bound.kl == free.kl
    assert bound.exceeds(0.1) and not bound.exceeds(bound.kl)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_nothing_that_a_fault_can_write_passes_for_agreement(bad: float) -> None:
    truth = logits(1)
    other = torch.full_like(truth, bad)
    assert compare(chosen_from([0] * 4, other), truth).exceeds(10.0)


def test_masked_tokens_are_no_divergence() -> None:
    rows = logits(1)
    rows[:, 10:] = -math.inf
    found = compare(chosen_from(greedy(rows), rows), rows)
    assert found.kl < 1e-6 and not found.changed


def test_only_tokens_that_came_from_logits_are_judged() -> None:
    truth, other = logits(1, tokens=5), logits(2, tokens=5)
    served = Served(constrained=True)
    served.skip([7])
    served.add(3, truth[1])
    served.skip([7, 7])
    served.add(5, truth[4])
    again = served.under(other)
    assert again.token_ids == served.token_ids == [7, 3, 7, 7, 5]
    assert again.judged == served.judged == [1, 4]
    assert compare(served, truth).tokens == compare(served, truth).agreed == 2
    assert compare(again, truth) == compare(chosen_from([3, 5], other[[1, 4]], constrained=True), truth[[1, 4]])


def test_the_sample_is_repeatable_and_of_the_share_asked_for() -> None:
    draws = [
        [sampler.next() for _ in range(4000)] for sampler in (Sampler(0.25, 1), Sampler(0.25, 1), Sampler(0.25, 2))
    ]
    assert draws[0] == draws[1] != draws[2]
    assert sum(draws[0]) / 4000 == pytest.approx(0.25, abs=0.03)
    # Traffic with a period is sampled evenly.
    assert sum(draws[0][::8]) / 500 == pytest.approx(0.25, abs=0.08)
    assert all(sampler.next() for sampler in [Sampler(1.0, 0)] * 50)
    assert not any(sampler.next() for sampler in [Sampler(0.0, 0)] * 50)
