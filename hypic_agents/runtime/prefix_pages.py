"""A checkpoint's tensors: keys and values in pages that conversations share, and the states behind one token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from hypic_agents.runtime.state import KVBuffer, LinearState, RowState, joined


@dataclass(frozen=True, slots=True)
class KVPages:
    """Keys (RoPE applied: an exact beginning keeps its positions) and values of consecutive tokens.

    ``layers`` holds a pair ``[length, Hkv, D]`` a full-attention layer.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]

    @property
    def nbytes(self) -> int:
        return sum(_nbytes(tensor) for pair in self.layers for tensor in pair)

    def split(self, at: int) -> tuple[KVPages, KVPages]:
        first = tuple((keys[:at].clone(), values[:at].clone()) for keys, values in self.layers)
        rest = tuple((keys[at:].clone(), values[at:].clone()) for keys, values in self.layers)
        return KVPages(first), KVPages(rest)


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """Linear states behind one token, a layer each; None where the layer is one of full attention."""

    layers: tuple[LinearState | None, ...]

    @property
    def nbytes(self) -> int:
        return sum(
            _nbytes(layer.recurrent_state) + _nbytes(layer.conv_tail) for layer in self.layers if layer is not None
        )


def take_snapshot(layers: Sequence[LinearState | KVBuffer | None]) -> StateSnapshot:
    """The linear states of a row, an item a layer, in memory of their own."""
    return StateSnapshot(
        tuple(
            LinearState(layer.recurrent_state.clone(), layer.conv_tail.clone())
            if isinstance(layer, LinearState)
            else None
            for layer in layers
        )
    )


def draw_pages(state: RowState, start: int, end: int) -> KVPages:
    """Keys and values of the tokens ``[start, end)`` of a row, in memory of their own."""
    buffers = (layer for layer in state.layers if isinstance(layer, KVBuffer))
    return KVPages(tuple((b.keys[start:end].clone(), b.values[start:end].clone()) for b in buffers))


def page_bytes(state: RowState) -> int:
    """What one token takes in pages."""
    return sum(_nbytes(b.keys[:1]) + _nbytes(b.values[:1]) for b in state.layers if isinstance(b, KVBuffer))


def resume(snapshot: StateSnapshot, pages: Sequence[KVPages], length: int, capacity: int) -> RowState:
    """A row that continues from a checkpoint of ``length`` tokens, with room for ``capacity``.

    It shares nothing that it changes: its keys and values are copies.
    """
    layers: list[LinearState | KVBuffer] = []
    at = 0
    for layer in snapshot.layers:
        if layer is None:
            keys, values = (joined([page.layers[at][i] for page in pages], capacity - length) for i in (0, 1))
            layers.append(KVBuffer(keys, values, length))
            at += 1
        else:
            layers.append(LinearState(layer.recurrent_state, layer.conv_tail))
    return RowState(layers, length)


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
