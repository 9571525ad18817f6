"""The affine map that a run of tokens applies to the recurrent state: ``S_out = transition @ S_in + end_state``.

Every linear-attention family updates its state as ``S_t = T_t S_{t-1} + u_t``, so any run of tokens is such a map, and
maps of neighbouring runs compose by an associative product. Decays make T a number or a vector, delta rules a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Form = Literal["scalar", "diagonal", "dense"]

_NUM_DIMS: dict[Form, int] = {"scalar": 1, "diagonal": 2, "dense": 3}


@dataclass(frozen=True, slots=True, eq=False)
class AffineMap:
    """One affine map per head. Differentiable: no method writes in place.

    Leading dimensions ``[...]`` of the parts, and of maps and states that meet, broadcast; H, K and V must agree.
    Parts of different precision meet in the wider one, so a transition kept in bfloat16 acts on a float32 state.

    Attributes:
        form: How ``transition`` is stored. Kept beside it because shapes alone cannot tell: with K = H, ``[H, K]`` may
            be one map's diagonal or a batch of scalars.
        transition: "scalar" ``[..., H]`` (gamma I), "diagonal" ``[..., H, K]`` (scales the rows of the state),
            "dense" ``[..., H, K, K]`` (multiplies the state from the left).
        end_state: State after the run when it starts from zero, ``[..., H, K, V]``.

    Raises:
        ValueError: unknown form, or a transition that does not fit the form and ``end_state``.
    """

    form: Form
    transition: Tensor
    end_state: Tensor

    def __post_init__(self) -> None:
        if self.form not in _NUM_DIMS:
            raise ValueError(f"form={self.form!r}: use {', '.join(_NUM_DIMS)}")
        if self.end_state.dim() < 3:
            raise ValueError(f"end_state must be [..., H, K, V], not {list(self.end_state.shape)}")
        expected = _transition_shape(self.form, self.end_state.shape)
        if self.transition.shape[-len(expected) :] != expected:
            raise ValueError(
                f"a {self.form} transition beside end_state {list(self.end_state.shape)} must end in {list(expected)}, "
                f"not {list(self.transition.shape)}"
            )

    @classmethod
    def identity(
        cls, form: Form, end_state_shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> AffineMap:
        """The map of an empty run: transition I, end state 0 of shape ``[..., H, K, V]``."""
        shape = torch.Size(end_state_shape)
        size = _transition_shape(form, shape)
        if form == "dense":
            transition = torch.eye(size[-1], dtype=dtype, device=device).expand(*shape[:-3], *size)
        else:
            transition = torch.ones(*shape[:-3], *size, dtype=dtype, device=device)
        return cls(form, transition, torch.zeros(shape, dtype=dtype, device=device))

    def apply(self, state: Tensor) -> Tensor:
        """The state after the run, ``[..., H, K, V]``, given the state before it, same shape."""
        return _act(self.form, self.transition, state) + self.end_state

    def compose(self, later: AffineMap) -> AffineMap:
        """The map of this run followed by ``later``, in the wider of the two forms."""
        return compose(self, later)

    def to_dense(self) -> AffineMap:
        """The same map with a ``[..., H, K, K]`` transition."""
        if self.form == "dense":
            return self
        size = self.end_state.shape[-2]
        eye = torch.eye(size, dtype=self.transition.dtype, device=self.transition.device)
        scale = self.transition[..., None, None] if self.form == "scalar" else self.transition[..., :, None]
        return AffineMap("dense", scale * eye, self.end_state)

    @property
    def nbytes(self) -> int:
        """Bytes of both tensors; an expanded dimension counts in full."""
        return self.transition.nbytes + self.end_state.nbytes


def compose(first: AffineMap, second: AffineMap) -> AffineMap:
    """The map of ``first``'s run followed by ``second``'s: ``S -> second.apply(first.apply(S))``.

    Associative; a scalar or diagonal factor is never expanded to a matrix.

    Args:
        first: Transition and end state ``[..., H, K, V]`` of the earlier run.
        second: Those of the later run; its H, K and V must equal ``first``'s.

    Raises:
        ValueError: H, K or V differ.
    """
    if first.end_state.shape[-3:] != second.end_state.shape[-3:]:
        raise ValueError(
            f"maps of [H, K, V] {list(first.end_state.shape[-3:])} and {list(second.end_state.shape[-3:])} "
            "do not compose"
        )
    end_state = second.apply(first.end_state)
    left, right = second.transition, first.transition
    if second.form == "scalar":
        return AffineMap(first.form, left[(...,) + (None,) * (_NUM_DIMS[first.form] - 1)] * right, end_state)
    if first.form == "scalar":
        return AffineMap(second.form, left * right[(...,) + (None,) * (_NUM_DIMS[second.form] - 1)], end_state)
    if second.form == "diagonal":
        return AffineMap(first.form, (left if first.form == "diagonal" else left[..., None]) * right, end_state)
    if first.form == "diagonal":
        return AffineMap("dense", left * right[..., None, :], end_state)
    return AffineMap("dense", _matmul(left, right), end_state)


def _transition_shape(form: Form, end_state_shape: torch.Size) -> torch.Size:
    num_heads, key_dim = end_state_shape[-3:-1]
    return torch.Size((num_heads, key_dim, key_dim)[: _NUM_DIMS[form]])


def _act(form: Form, transition: Tensor, state: Tensor) -> Tensor:
    """``transition @ state`` for a state ``[..., H, K, V]``."""
    if form == "dense":
        return _matmul(transition, state)
    scale = transition[..., None, None] if form == "scalar" else transition[..., None]
    return scale * state


def _matmul(left: Tensor, right: Tensor) -> Tensor:
    dtype = torch.promote_types(left.dtype, right.dtype)
    return left.to(dtype) @ right.to(dtype)
