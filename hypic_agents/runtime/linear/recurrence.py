"""Token-by-token reference of every linear-attention family: slow, short, in any precision.

One state update covers them all, with ``D_t = exp(log_decay_t)`` acting on the rows of the state:

* plain: ``S_t = D_t S_{t-1} + k_t v_t^T`` (lightning and Mamba-2 with a scalar decay, GLA with a diagonal one);
* delta rule: ``S_t = D_t S_{t-1} + k_t (beta_t (v_t - k_t^T D_t S_{t-1}))^T`` (GDN scalar, KDA diagonal), which is
  ``T_t = (I - beta_t k_t k_t^T) D_t``: decay first, then correct what the decayed state predicts.

Read-out is ``o_t = q_t^T S_t``. Sources: Gated DeltaNet (arXiv 2412.06464), Kimi Linear (arXiv 2510.26692), and the
recurrent functions of transformers' qwen3_5 and kimi_linear, which the tests compare with.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hypic_agents.runtime.linear.affine import AffineMap, Form


def form_of(log_decay: Tensor, beta: Tensor | None) -> Form:
    """Form of a run's transition: "dense" with the delta rule, else by the rank of ``log_decay``.

    Raises:
        ValueError: ``log_decay`` is neither ``[B, T, H]`` nor ``[B, T, H, K]``.
    """
    if log_decay.dim() not in (3, 4):
        raise ValueError(f"log_decay must be [B, T, H] or [B, T, H, K], not {list(log_decay.shape)}")
    if beta is not None:
        return "dense"
    return "scalar" if log_decay.dim() == 3 else "diagonal"


def recurrence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor | None = None,
    initial_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Runs the recurrence over T tokens.

    Args:
        q: Queries ``[B, T, H, K]``, already scaled (and normalised, where the model does so).
        k: Keys ``[B, T, H, K]``, one per value head.
        v: Values ``[B, T, H, V]``.
        log_decay: Natural logarithm of the decay, at most 0: ``[B, T, H]`` or ``[B, T, H, K]``.
        beta: Delta-rule step ``[B, T, H]``, between 0 and 2; None for the plain rule.
        initial_state: ``[B, H, K, V]``, zero if None.

    Returns:
        Outputs ``[B, T, H, V]`` in the dtype of ``v`` and the final state ``[B, H, K, V]``, computed in float32 or, if
        any input is float64, in float64. No tokens: no outputs, and the initial state.

    Raises:
        ValueError: ``log_decay`` of another rank.
    """
    form_of(log_decay, beta)
    dtype = _compute_dtype(q, k, v, log_decay, beta, initial_state)
    keys, values, decays = k.to(dtype), v.to(dtype), _row_decay(log_decay.to(dtype))
    num_rows, num_tokens, num_heads, key_dim = k.shape
    state = k.new_zeros(num_rows, num_heads, key_dim, v.shape[-1], dtype=dtype)
    if initial_state is not None:
        state = initial_state.to(dtype)
    outputs = []
    for t in range(num_tokens):
        state = decays[:, t] * state
        update = values[:, t]
        if beta is not None:
            update = beta[:, t].to(dtype)[..., None] * (update - _read(keys[:, t], state))
        state = state + keys[:, t, :, :, None] * update[:, :, None, :]
        outputs.append(_read(q[:, t].to(dtype), state))
    return torch.stack(outputs, 1).to(v.dtype) if outputs else torch.zeros_like(v), state


def transition_of(k: Tensor, log_decay: Tensor, beta: Tensor | None = None) -> Tensor:
    """Product ``T_T ... T_1`` of a run's transitions, token by token.

    Args:
        k: Keys ``[B, T, H, K]``.
        log_decay: ``[B, T, H]`` or ``[B, T, H, K]``.
        beta: ``[B, T, H]`` or None.

    Returns:
        In the form that :func:`form_of` names: ``[B, H]``, ``[B, H, K]`` or ``[B, H, K, K]``.

    Raises:
        ValueError: ``log_decay`` of another rank.
    """
    form_of(log_decay, beta)
    dtype = _compute_dtype(k, log_decay, beta)
    if beta is None:
        return log_decay.to(dtype).sum(1).exp()
    keys, decays = k.to(dtype), _row_decay(log_decay.to(dtype))
    num_rows, num_tokens, num_heads, key_dim = k.shape
    eye = torch.eye(key_dim, dtype=dtype, device=k.device)
    product = eye.expand(num_rows, num_heads, key_dim, key_dim)
    for t in range(num_tokens):
        correction = beta[:, t].to(dtype)[..., None, None] * keys[:, t, :, :, None] * keys[:, t, :, None, :]
        product = (eye - correction) @ (decays[:, t] * product)
    return product


def affine_map_of(k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor | None = None) -> AffineMap:
    """A run's map: its transition and its end state from zero. Shapes as in :func:`recurrence`."""
    _, end_state = recurrence(torch.zeros_like(k), k, v, log_decay, beta)
    return AffineMap(form_of(log_decay, beta), transition_of(k, log_decay, beta), end_state)


def _compute_dtype(*tensors: Tensor | None) -> torch.dtype:
    dtype = torch.float32
    for tensor in tensors:
        if tensor is not None:
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def _row_decay(log_decay: Tensor) -> Tensor:
    """``exp(log_decay)`` as ``[B, T, H, K or 1, 1]``, to scale the rows of a state ``[B, H, K, V]``."""
    decay = log_decay.exp()
    return decay[..., None, None] if decay.dim() == 3 else decay[..., None]


def _read(vector: Tensor, state: Tensor) -> Tensor:
    """``vector^T state``: ``[B, H, K]`` and ``[B, H, K, V]`` give ``[B, H, V]``."""
    return (vector[..., None] * state).sum(-2)
