"""Transitions of the runs that a pass follows: the product of what their chunks do to a state.

Apart from the chain of states, though both depend on the same factors: carried along as further columns of the state, a
transition takes several times as long.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from hypic_agents.runtime.batch import PackedBatch
from hypic_agents.runtime.ops.chunk_rule import ChunkFactors, advance_transition, chunk_transitions

# Times the smallest normal number: what is below has room to fall by a chunk's decay before it is subnormal.
_FADED: Final = 1e8
# Numbers of the chunks' own transitions that exist at a time.
_MOST_NUMBERS: Final = 1 << 22


def follow_transitions(factors: ChunkFactors, batch: PackedBatch, before: Tensor | None) -> Tensor | None:
    """Transitions ``[R, H, K, K]`` of all rows, from their beginnings to the pass's end; None where none is followed.

    Args:
        factors: Of all chunks.
        batch: Says where transitions begin. A row in which none does has zeros.
        before: The transitions of the same rows up to this pass, which are followed on.
    """
    if before is None and not batch.any_transition:
        return None
    _, heads, _, key_dim = factors.k_end.shape
    eye = torch.eye(key_dim, dtype=factors.k_end.dtype, device=factors.k_end.device).expand(heads, -1, -1)
    found: dict[int, Tensor] = {} if before is None else dict(enumerate(before.unbind()))
    chunks: dict[int, list[int]] = {row: [] for row in found}
    for step in batch.steps:
        for row in step.begin:
            found[row], chunks[row] = eye, []
        for at, row in enumerate(step.chunk_rows):
            if row in found:
                chunks[row].append(step.chunks.start + at)
    through = through_chunks if eye.device.type == "cpu" else through_pairs
    for row, own in chunks.items():
        found[row] = through(factors, own, found[row])
    return torch.stack([found[row] if row in found else torch.zeros_like(eye) for row in range(len(batch.rows))])


def through_chunks(factors: ChunkFactors, chunks: list[int], transition: Tensor) -> Tensor:
    """Follow a transition ``[H, K, K]`` through chunks one after the other, which takes the fewest operations.

    Ends in zeros for what no sum would notice: a transition fades, and a CPU's products of subnormal numbers are slow.
    """
    faded = _FADED * torch.finfo(transition.dtype).tiny
    for chunk in chunks:
        transition = F.hardshrink(advance_transition(factors, chunk, transition), faded)
    return transition


def through_pairs(factors: ChunkFactors, chunks: list[int], transition: Tensor) -> Tensor:
    """The same in few steps, for a device on which a product of many matrices takes as long as that of one."""
    _, heads, _, key_dim = factors.k_end.shape
    span = max(1, _MOST_NUMBERS // (heads * key_dim * key_dim))
    for start in range(0, len(chunks), span):
        index = torch.tensor(chunks[start : start + span], device=transition.device)
        own = chunk_transitions(factors, index)
        while len(own) > 1:
            paired = len(own) // 2 * 2
            own = torch.cat((own[1:paired:2] @ own[:paired:2], own[paired:]))
        transition = own[0] @ transition
    return transition
