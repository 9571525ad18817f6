"""The chunked rule against the token-by-token recurrence, for every family."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad, softplus

from hypic_agents.runtime.linear.follow import through_chunks, through_pairs
from hypic_agents.runtime.linear.recurrence import recurrence, transition_of
from hypic_agents.runtime.ops.chunk_rule import ChunkFactors, advance, chunk_factors, chunk_outputs

FAMILIES = ("scalar", "diagonal", "scalar_delta", "diagonal_delta")
DECAYS = {"none": 0.0, "weak": 1e-3, "usual": 1.0, "strong": 30.0}
HEADS, KEY_DIM, VALUE_DIM = 2, 5, 7
Run = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]


def random_run(
    family: str,
    num_tokens: int,
    *,
    decay: float = 1.0,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    sizes: tuple[int, int, int] = (HEADS, KEY_DIM, VALUE_DIM),
) -> Run:
    """q, k, v, log_decay, beta of one row ``[T, H, ...]``: unit keys, beta between 0 and 2."""
    gen = torch.Generator().manual_seed(1000 * num_tokens + seed)
    heads, key_dim, value_dim = sizes

    def draw(*size: int) -> Tensor:
        return torch.randn(num_tokens, heads, *size, generator=gen, dtype=torch.float64).to(dtype)

    log_decay = -decay * softplus(draw(key_dim) if family.startswith("diagonal") else draw())
    beta = 2 * draw().sigmoid() if family.endswith("delta") else None
    return draw(key_dim), normalize(draw(key_dim), dim=-1), draw(value_dim), log_decay, beta


Order = list[tuple[int, int]]


def chunked(runs: list[Run], chunk: int) -> tuple[ChunkFactors, Order]:
    """Factors of all chunks of rows, longest row first, and the row and step of each."""
    lengths = [run[0].shape[0] for run in runs]
    order = [(row, step) for step in range(lengths[0]) for row, n in enumerate(lengths) if n > step * chunk]

    def pieces(index: int) -> Tensor:
        parts = []
        for row, step in order:
            part = runs[row][index][step * chunk : (step + 1) * chunk].transpose(0, 1)
            parts.append(pad(part, (0, 0) * (part.dim() - 2) + (0, chunk - part.shape[1])))
        return torch.stack(parts)

    return chunk_factors(*(pieces(i) for i in range(4)), pieces(4) if runs[0][4] is not None else None), order


def run_chunked(runs: list[Run], states: Tensor, chunk: int) -> tuple[list[Tensor], Tensor]:
    """Rows of any lengths, longest first, through the chunked rule.

    Args:
        runs: R runs ``[T_r, H, ...]``.
        states: ``[R, H, K, V]``.
        chunk: Tokens a chunk.

    Returns:
        Outputs ``[T_r, H, V]`` of each row and the final states, shaped like ``states``.
    """
    factors, order = chunked(runs, chunk)
    starts, written, done = [], [], 0
    for _, rows in groupby(order, key=itemgetter(1)):
        count = len(list(rows))
        active = states[:count]
        following, values = advance(factors[done : done + count], active)
        starts.append(active)
        written.append(values)
        states = torch.cat((following, states[count:]))
        done += count
    outputs = chunk_outputs(factors, torch.cat(starts), torch.cat(written))
    by_row = [[outputs[i] for i, (r, _) in enumerate(order) if r == row] for row in range(len(runs))]
    return [torch.cat(o, 1).transpose(0, 1)[: len(r[0])] for o, r in zip(by_row, runs, strict=True)], states


def expected_of(run: Run, state: Tensor) -> tuple[Tensor, Tensor]:
    outputs, final_state = recurrence(*(None if x is None else x[None] for x in run), state[None])
    return outputs[0], final_state[0]


def random_states(rows: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(rows, HEADS, KEY_DIM, VALUE_DIM, generator=torch.Generator().manual_seed(7), dtype=dtype)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("chunk", [1, 16, 32, 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_odd_lengths_equal_the_recurrence(family: str, chunk: int, decay: str) -> None:
    runs = [random_run(family, n, decay=DECAYS[decay], seed=i) for i, n in enumerate((131, 64, 64, 33, 1))]
    states = random_states(len(runs))
    outputs, final_states = run_chunked(runs, states, chunk)
    for row, run in enumerate(runs):
        expected_outputs, expected_state = expected_of(run, states[row])
        torch.testing.assert_close(outputs[row], expected_outputs)
        torch.testing.assert_close(final_states[row], expected_state)


@pytest.mark.parametrize("through", [through_chunks, through_pairs])
@pytest.mark.parametrize("chunk", [1, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_carry_the_transition(
    family: str, chunk: int, through: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hypic_agents.runtime.linear.follow._MOST_NUMBERS", 5 * HEADS * KEY_DIM**2)
    runs = [random_run(family, n, decay=0.05, seed=i) for i, n in enumerate((137, 37, 5))]
    factors, order = chunked(runs, chunk)
    before = torch.randn(HEADS, KEY_DIM, KEY_DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for row, run in enumerate(runs):
        transition = transition_of(run[1][None], run[3][None], None if run[4] is None else run[4][None])[0]
        if family in ("scalar", "diagonal"):
            transition = torch.diag_embed(transition.view(HEADS, -1).expand(HEADS, KEY_DIM))
        found = through(factors, [i for i, (r, _) in enumerate(order) if r == row], before)
        torch.testing.assert_close(found, transition @ before)


@pytest.mark.parametrize("family", FAMILIES)
def test_result_does_not_depend_on_the_chunk_nor_on_other_rows(family: str) -> None:
    runs = [random_run(family, n, seed=i) for i, n in enumerate((50, 20))]
    states = random_states(2)
    together, final_states = run_chunked(runs, states, 16)
    for chunk in (1, 7, 64):
        alone, final_state = run_chunked(runs[1:], states[1:], chunk)
        torch.testing.assert_close(alone[0], together[1])
        torch.testing.assert_close(final_state[0], final_states[1])


@pytest.mark.parametrize("decay", ["usual", "strong"])
@pytest.mark.parametrize("family", FAMILIES)
def test_float32_stays_close_and_finite_with_its_gradients(family: str, decay: str) -> None:
    run = random_run(family, 70, decay=DECAYS[decay], dtype=torch.float32)
    inputs = tuple(None if x is None else x.requires_grad_() for x in run)
    states = random_states(1, torch.float32)
    outputs, final_states = run_chunked([inputs], states, 32)
    expected_outputs, expected_state = expected_of(tuple(None if x is None else x.double() for x in run), states[0])
    torch.testing.assert_close(outputs[0].double(), expected_outputs.double(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(final_states[0].double(), expected_state, atol=1e-4, rtol=1e-4)
    (outputs[0].sum() + final_states.sum()).backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in inputs if x is not None)


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients(family: str, chunk: int) -> None:
    run = random_run(family, 4, sizes=(1, 2, 3))
    state = torch.randn(1, 1, 2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (*run, state) if x is not None]

    def flat(*args: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v, log_decay, *rest = args
        beta = rest[0] if len(rest) == 2 else None
        outputs, final_states = run_chunked([(q, k, v, log_decay, beta)], args[-1], chunk)
        return outputs[0], final_states

    assert torch.autograd.gradcheck(flat, inputs)
