"""Torch reference and CPU path of the chunked linear recurrence.

One signature for all families. With a decay ``D_t`` (a number or a vector a head) and optional delta rule::

    S_t = D_t S_{t-1} + k_t (b_t (v_t - k_t^T D_t S_{t-1}))^T      delta rule (GDN, KDA)
    S_t = D_t S_{t-1} + k_t v_t^T                                  without (lightning, Mamba-2, GLA)
    o_t = q_t^T S_t

a chunk of C tokens acts on the incoming state ``S`` as (WY form: Yang et al., arXiv 2406.06484 and 2412.06464)::

    new_values = u - w S                     [C, V]    (w absent without the delta rule)
    o          = q_in S + attn new_values    [C, V]
    S'         = decay S + k_end^T new_values

so the factors of all chunks are computed in one batch, and only the two small products of ``advance`` are sequential.
Everything is out of place and differentiable.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ChunkFactors:
    """Factors of N chunks of C tokens; float32 or float64.

    Attributes:
        u: ``[N, H, C, V]`` values the chunk writes from a zero state.
        w: ``[N, H, C, K]`` how those values shrink with the incoming state; None without the delta rule.
        q_in: ``[N, H, C, K]`` queries on the incoming state.
        k_end: ``[N, H, C, K]`` keys as seen from the chunk's end.
        attn: ``[N, H, C, C]`` decayed causal query-key products inside the chunk.
        decay: ``[N, H, 1, 1]`` or ``[N, H, K, 1]`` the whole chunk's decay.
    """

    u: Tensor
    w: Tensor | None
    q_in: Tensor
    k_end: Tensor
    attn: Tensor
    decay: Tensor

    def __getitem__(self, chunks: slice) -> ChunkFactors:
        """The factors of some chunks, as views."""
        return ChunkFactors(
            self.u[chunks],
            None if self.w is None else self.w[chunks],
            self.q_in[chunks],
            self.k_end[chunks],
            self.attn[chunks],
            self.decay[chunks],
        )


def chunk_factors(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor | None = None) -> ChunkFactors:
    """Factors of chunks that stand alone.

    Padding tokens have ``k = v = 0``, ``log_decay = 0`` and ``beta = 0`` and change nothing.

    Args:
        q, k: ``[N, H, C, K]``, q already scaled.
        v: ``[N, H, C, V]``.
        log_decay: ``[N, H, C]`` (a number a head) or ``[N, H, C, K]`` (a vector a head), at most 0.
        beta: ``[N, H, C]`` write strengths of the delta rule, or None.
    """
    if log_decay.dim() == q.dim():
        return _diagonal_factors(q, k, v, log_decay, beta)
    cum = log_decay.cumsum(-1)
    into = cum.exp().unsqueeze(-1)
    key_t = k.transpose(-1, -2)
    size = q.shape[-2]
    if size == 1:
        attn = q @ key_t
        w = None if beta is None else k * (beta.unsqueeze(-1) * into)
        u = v if beta is None else v * beta.unsqueeze(-1)
        return ChunkFactors(u, w, q * into, k, attn, into)
    future = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
    pair = (cum.unsqueeze(-1) - cum.unsqueeze(-2)).masked_fill(future, float("-inf")).exp()
    attn = (q @ key_t) * pair
    k_end = k * (cum[..., -1:] - cum).exp().unsqueeze(-1)
    decay = into[..., -1:, :]
    if beta is None:
        return ChunkFactors(v, None, q * into, k_end, attn, decay)
    k_beta = k * beta.unsqueeze(-1)
    system = (k_beta @ key_t) * pair
    u, w = _solve(system, v * beta.unsqueeze(-1), k_beta * into)
    return ChunkFactors(u, w, q * into, k_end, attn, decay)


def _diagonal_factors(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor | None) -> ChunkFactors:
    cum = log_decay.cumsum(-2)
    into = cum.exp()
    size = q.shape[-2]
    future = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
    # The pairwise decays are formed before exp: exp(-cum) alone overflows after a few strongly decaying tokens.
    pair = (cum.unsqueeze(-2) - cum.unsqueeze(-3)).masked_fill(future.unsqueeze(-1), float("-inf")).exp()
    attn = torch.einsum("nhik,nhjk,nhijk->nhij", q, k, pair)
    k_end = k * (cum[..., -1:, :] - cum).exp()
    decay = into[..., -1, :].unsqueeze(-1)
    if beta is None:
        return ChunkFactors(v, None, q * into, k_end, attn, decay)
    k_beta = k * beta.unsqueeze(-1)
    system = torch.einsum("nhik,nhjk,nhijk->nhij", k_beta, k, pair)
    u, w = _solve(system, v * beta.unsqueeze(-1), k_beta * into)
    return ChunkFactors(u, w, q * into, k_end, attn, decay)


def _solve(system: Tensor, values: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """``(I + strict_lower(system))^-1`` applied to values and keys.

    The inverse is formed: a solve for the few columns of the identity and two products take half the time of a solve
    for all columns of values and keys.
    """
    eye = torch.eye(system.shape[-1], dtype=system.dtype, device=system.device).expand_as(system)
    inverse = torch.linalg.solve_triangular(system, eye, upper=False, left=True, unitriangular=True)
    return inverse @ values, inverse @ keys


def advance(factors: ChunkFactors, state: Tensor) -> tuple[Tensor, Tensor]:
    """One chunk for every row: ``(next state, new values)``.

    Args:
        factors: Of R chunks, one a row.
        state: ``[R, H, K, V]``.

    Returns:
        The state after the chunk, same shape, and the new values ``[R, H, C, V]``.
    """
    # Each product takes its sum along: apart, the sums of such small matrices take as long as the products.
    before, keys_t = state.flatten(0, 1), factors.k_end.flatten(0, 1).transpose(1, 2)
    values = factors.u.flatten(0, 1)
    if factors.w is not None:
        values = torch.baddbmm(values, factors.w.flatten(0, 1), before, alpha=-1)
    after = (factors.decay.flatten(0, 1) * before).baddbmm_(keys_t, values)
    return after.view_as(state), values.view_as(factors.u)


def advance_transition(factors: ChunkFactors, chunk: int, transition: Tensor) -> Tensor:
    """A transition ``[H, K, K]`` up to a chunk, followed through it: :func:`advance` where no values are written."""
    after = factors.decay[chunk] * transition
    if factors.w is None:
        return after
    return after.baddbmm_(factors.k_end[chunk].transpose(1, 2), torch.bmm(factors.w[chunk], transition), alpha=-1)


def chunk_transitions(factors: ChunkFactors, chunks: slice | Tensor) -> Tensor:
    """What some chunks do to any incoming state: ``decay - k_end^T w``, ``[chunks, H, K, K]``."""
    keys, decay = factors.k_end[chunks], factors.decay[chunks]
    key_dim = keys.shape[-1]
    if factors.w is None:
        found = keys.new_zeros(*keys.shape[:2], key_dim, key_dim)
    else:
        found = -(keys.transpose(-1, -2) @ factors.w[chunks])
    found.diagonal(dim1=-2, dim2=-1).add_(decay.squeeze(-1))
    return found


def chunk_outputs(factors: ChunkFactors, states: Tensor, values: Tensor) -> Tensor:
    """Outputs of all chunks ``[N, H, C, V]`` from their incoming states ``[N, H, K, V]`` and new values."""
    read = factors.q_in @ states
    return read.flatten(0, 1).baddbmm_(factors.attn.flatten(0, 1), values.flatten(0, 1)).view_as(read)
