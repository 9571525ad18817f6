"""What a pass leaves behind and takes up again: states of running requests and payloads of segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LinearPayload:
    """A segment's interior in one linear layer.

    Attributes:
        transition: ``[H]``, ``[H, K]`` or ``[H, K, K]`` operator of the interior; None when the policy drops it.
        end_state: ``[H, K, V]`` state after the interior from a zero start.
        conv_tail: ``[conv_width - 1, channels]`` last inputs of the causal conv.
    """

    transition: Tensor | None
    end_state: Tensor
    conv_tail: Tensor

    def tensors(self) -> Iterator[Tensor]:
        if self.transition is not None:
            yield self.transition
        yield self.end_state
        yield self.conv_tail


@dataclass(frozen=True, slots=True)
class AttentionPayload:
    """A segment's interior in one full-attention layer: keys after their norm and without RoPE, and values.

    ``keys`` and ``values`` are ``[length, kv_heads, head_dim]``; ``position`` is where ``keys[0]`` stood when built.
    """

    keys: Tensor
    values: Tensor
    position: int

    def tensors(self) -> Iterator[Tensor]:
        yield self.keys
        yield self.values


@dataclass(frozen=True, slots=True)
class SegmentPayload:
    """Everything reused of one segment: one payload a layer, ``length`` interior tokens.

    A checkpoint holds the state itself behind its tokens instead of an affine map.
    """

    layers: tuple[LinearPayload | AttentionPayload, ...]
    length: int
    is_checkpoint: bool = False

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for layer in self.layers for t in layer.tensors())


@dataclass(slots=True)
class KVBuffer:
    """Keys (RoPE applied) and values of one running request in one layer, with room to grow. ``[capacity, Hkv, D]``."""

    keys: Tensor
    values: Tensor
    length: int

    def extend(self, keys: Tensor, values: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Put ``[n, Hkv, D]`` at positions from ``start`` and return views of all keys and values up to their end.

        What stood behind ``start`` is dropped, so a pass that failed halfway can be run again.
        """
        end = start + keys.shape[0]
        if end > self.keys.shape[0]:
            capacity = max(end + 64, self.keys.shape[0] * 5 // 4)
            self.keys = _grown(self.keys, start, capacity)
            self.values = _grown(self.values, start, capacity)
        self.keys[start:end] = keys
        self.values[start:end] = values
        self.length = end
        return self.keys[:end], self.values[:end]


def joined(parts: Sequence[Tensor], room: int = 0) -> Tensor:
    """``[n, Hkv, D]`` pieces one behind the other, at the beginning of a tensor with room for ``room`` more rows."""
    if not room:
        return torch.cat(list(parts))
    length = sum(part.shape[0] for part in parts)
    whole = parts[0].new_empty((length + room, *parts[0].shape[1:]))
    torch.cat(list(parts), out=whole[:length])
    return whole


def _grown(old: Tensor, length: int, capacity: int) -> Tensor:
    new = torch.empty((capacity, *old.shape[1:]), dtype=old.dtype, device=old.device)
    new[:length] = old[:length]
    return new


@dataclass(slots=True)
class LinearState:
    """Recurrent state ``[H, K, V]`` and conv tail ``[conv_width - 1, channels]`` of one request in one layer."""

    recurrent_state: Tensor
    conv_tail: Tensor


@dataclass(slots=True)
class RowState:
    """State of one sequence after ``length`` tokens: one item a layer."""

    layers: list[LinearState | KVBuffer] = field(default_factory=list)
    length: int = 0
