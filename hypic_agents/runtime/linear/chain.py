"""The chain: chunks and reused runs of every row act on its recurrent state, in order.

``S_out = transition S_in + end_state`` for a reused run (HYPIC, arXiv 2607.01299), the factors of
:mod:`hypic_agents.runtime.ops.chunk_rule` for a chunk of live tokens. Rows move in lockstep, so the number of
sequential steps is that of the longest row, whatever the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hypic_agents.runtime.batch import PackedBatch, ReusedRun, Step
from hypic_agents.runtime.linear.affine import AffineMap, Form
from hypic_agents.runtime.linear.follow import follow_transitions
from hypic_agents.runtime.ops.chunk_rule import ChunkFactors, advance, chunk_outputs
from hypic_agents.runtime.state import LinearPayload, LinearState

# A payload's transition has no leading dimensions: [H], [H, K] or [H, K, K].
_FORMS: dict[int, Form] = {1: "scalar", 2: "diagonal", 3: "dense"}


@dataclass(frozen=True, slots=True)
class ChainResult:
    """What the chain of one layer gives.

    Attributes:
        end_state: ``[R, H, K, V]`` of all rows.
        transition: ``[R, H, K, K]`` from each row's ``begin_transition`` to its end, or None.
        begin_state: ``[R, H, K, V]`` state where the transition begins, or None.
        captured: ``[captures, H, K, V]`` states at captured run ends, in the batch's order, or None.
    """

    end_state: Tensor
    transition: Tensor | None
    begin_state: Tensor | None
    captured: Tensor | None


def run_chain(
    factors: ChunkFactors, batch: PackedBatch, layer: int, before: ChainResult | None = None
) -> tuple[Tensor, ChainResult]:
    """Run all rows of ``batch`` through one linear layer: outputs ``[N, H, C, V]`` of all chunks, and what is left.

    ``before`` is what the same rows left in the block before, whose transitions are followed on.
    """
    heads, key_dim, value_dim = factors.k_end.shape[1], factors.k_end.shape[-1], factors.u.shape[-1]
    state = _initial(batch, layer, factors, (heads, key_dim, value_dim))
    num_rows = len(batch.rows)
    begin_state = None if before is None else before.begin_state
    incoming: list[Tensor] = []
    values: list[Tensor] = []
    captured: list[Tensor] = []
    for step in batch.steps:
        if step.begin:
            chosen = _row_mask(step.begin, state)
            old = torch.zeros_like(state) if begin_state is None else begin_state
            begin_state = state if chosen is None else torch.where(chosen, state, old)
        if step.reused:
            state = _compose(state, step, layer, num_rows)
        if step.chunk_rows:
            rows = None if len(step.chunk_rows) == num_rows else _index(step.chunk_rows, state)
            taken = state if rows is None else state.index_select(0, rows)
            after, new = advance(factors[step.chunks], taken)
            state = after if rows is None else state.index_copy(0, rows, after)
            incoming.append(taken)
            values.append(new)
        if step.capture:
            captured.append(state.index_select(0, _index(step.capture, state)))
    outputs = chunk_outputs(factors, torch.cat(incoming), torch.cat(values))
    return outputs, ChainResult(
        end_state=state,
        transition=follow_transitions(factors, batch, None if before is None else before.transition),
        begin_state=begin_state,
        captured=torch.cat(captured) if captured else None,
    )


def _initial(batch: PackedBatch, layer: int, factors: ChunkFactors, shape: tuple[int, int, int]) -> Tensor:
    zero: Tensor | None = None
    states = []
    for row in batch.rows:
        if row.past is not None:
            past = row.past.layers[layer]
            assert isinstance(past, LinearState)
            states.append(past.recurrent_state)
        else:
            zero = factors.u.new_zeros(shape) if zero is None else zero
            states.append(zero)
    return torch.stack(states)


def _compose(state: Tensor, step: Step, layer: int, num_rows: int) -> Tensor:
    results = [compose_run(run, layer, state[r]) for r, run in step.reused]
    stacked = results[0].unsqueeze(0) if len(results) == 1 else torch.stack(results)
    if len(results) == num_rows:
        return stacked
    return state.index_copy(0, _index([r for r, _ in step.reused], state), stacked)


def compose_run(run: ReusedRun, layer: int, state: Tensor) -> Tensor:
    """The state ``[H, K, V]`` after a reused run, as the run's rule says (see ``ReusePolicy.compose``)."""
    payload = run.payload.layers[layer]
    assert isinstance(payload, LinearPayload)
    end = payload.end_state
    if run.compose == "last":
        return end
    if run.compose == "zero":
        return torch.zeros_like(end)
    if run.compose == "addition" or payload.transition is None:
        return state + end
    form: Form = _FORMS[payload.transition.dim()]
    if form == "dense" and payload.transition.dtype == state.dtype == end.dtype:
        return torch.baddbmm(end, payload.transition, state)  # in one call: a prompt makes one a segment and layer
    return AffineMap(form, payload.transition, end).apply(state)


def _index(rows: list[int], like: Tensor) -> Tensor:
    return torch.tensor(rows, dtype=torch.long, device=like.device)


def _row_mask(rows: list[int], state: Tensor) -> Tensor | None:
    if len(rows) == state.shape[0]:
        return None
    mask = torch.zeros(state.shape[0], dtype=torch.bool, device=state.device)
    mask[rows] = True
    return mask.view(-1, 1, 1, 1)
