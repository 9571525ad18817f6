"""Transitions of short segments in few numbers: ``gamma I`` minus a product of thin factors.

A dense transition is ``gamma`` times a product of ``I - b k k^T`` over the segment's tokens, gamma the product of the
decays. So ``gamma I - T`` has at most the tokens' rank, and less where their keys are alike. ``T`` itself has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hypic_agents.runtime.state import SegmentPayload


@dataclass(frozen=True, slots=True)
class LowRank:
    """``T_h = gammas_h I - left_h^T right_h`` for some heads of a layer.

    Attributes:
        heads: ``[n]`` int32, which heads.
        gammas: ``[n]`` float32.
        ranks: ``[n]`` int32: the rows of each head in ``left`` and ``right``.
        left, right: ``[sum of ranks, K]`` float32, the heads' factors behind one another.
    """

    heads: Tensor
    gammas: Tensor
    ranks: Tensor
    left: Tensor
    right: Tensor

    def tensors(self) -> Iterator[Tensor]:
        yield from (self.heads, self.gammas, self.ranks, self.left, self.right)

    def dense(self) -> Tensor:
        """The transitions ``[n, K, K]``. In float64 inside, so that every machine rounds to the same numbers."""
        eye = torch.eye(self.left.shape[1], dtype=torch.float64, device=self.left.device)
        sizes = self.ranks.tolist()
        left, right = self.left.double().split(sizes), self.right.double().split(sizes)
        made = [gamma * eye - a.T @ b for gamma, a, b in zip(self.gammas.double(), left, right, strict=True)]
        return torch.stack(made).float() if made else eye.new_zeros((0, *eye.shape), dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class FactoredPayload(SegmentPayload):
    """A payload with some transitions in factors too, which are what is written of them.

    Attributes:
        factors: One a layer; None where there is none.
    """

    factors: tuple[LowRank | None, ...] = ()

    @property
    def nbytes(self) -> int:
        held = (tensor for layer in self.factors if layer is not None for tensor in layer.tensors())
        return SegmentPayload.nbytes.fget(self) + sum(tensor.nbytes for tensor in held)  # type: ignore[attr-defined,no-any-return]


def factored(transition: Tensor, tolerance: float) -> LowRank | None:
    """The heads of ``transition`` ``[H, K, K]`` whose factors take less than the matrix; None if there is none.

    Args:
        transition: Finite or not; heads with other numbers, and heads of zeros, are left as they are.
        tolerance: Largest Frobenius norm of what a head's factors leave out.
    """
    usable = transition.flatten(1).isfinite().all(1) & transition.flatten(1).any(1)
    if not usable.any():
        return None
    size = transition.shape[-1]
    eye = torch.eye(size, dtype=torch.float64, device=transition.device)
    dense = torch.where(usable[:, None, None], transition, 0.0).double()
    # Directions that no key has touched keep gamma itself: it is the largest value, or one of the diagonal's.
    diagonal = dense.diagonal(dim1=-2, dim2=-1)
    candidates = (torch.linalg.matrix_norm(dense, 2), diagonal.amax(-1), diagonal.median(-1).values)
    best: tuple[Tensor, Tensor] | None = None
    for gamma in (each.float().double() for each in candidates):
        rank = _rank(torch.linalg.svdvals(gamma[:, None, None] * eye - dense), tolerance)
        if best is None:
            best = gamma, rank
        else:
            better = rank < best[1]
            best = torch.where(better, gamma, best[0]), torch.where(better, rank, best[1])
    assert best is not None
    chosen = (usable & (2 * best[1] < size)).nonzero().flatten()
    if not len(chosen):
        return None
    gammas, ranks = best[0][chosen], best[1][chosen]
    left, values, right = torch.linalg.svd(gammas[:, None, None] * eye - dense[chosen])
    kept = torch.arange(size, device=ranks.device) < ranks[:, None]
    roots = values.sqrt()[:, :, None]
    return LowRank(
        chosen.int(),
        gammas.float(),
        ranks.int(),
        (left.mT * roots)[kept].float().contiguous(),
        (right * roots)[kept].float().contiguous(),
    )


def _rank(values: Tensor, tolerance: float) -> Tensor:
    """How many singular values ``[H, K]``, largest first, must be kept so that the rest is within the tolerance."""
    rest = values.square().flip(-1).cumsum(-1).flip(-1).sqrt()
    return (rest > tolerance).sum(-1)
