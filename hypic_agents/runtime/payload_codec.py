"""Payloads of segments as raw tensors and back: what the disk tier writes of them.

Written as they are, nothing is rounded. Written compactly, states and transitions are rounded to bfloat16, or to int8
with a power of two for each row. Rounding twice changes nothing more, so a payload that was rounded when it was built
comes back bit for bit. Heads whose transition is zero are left out, either way, unless they are to be kept. Transitions
that a payload holds in factors are written as those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from hypic_agents.runtime.cache.container import RawTensor
from hypic_agents.runtime.cache.entry import Payload
from hypic_agents.runtime.low_rank import FactoredPayload, LowRank
from hypic_agents.runtime.state import AttentionPayload, LinearPayload, SegmentPayload

Numbers = Literal["float32", "bfloat16", "int8"]

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int32: "I32",
    torch.int8: "I8",
}
_LOW = ("low_heads", "low_gammas", "low_ranks")
_UNPACKED = {"transition", "end_state", "conv_tail", "keys", "values"}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


class SegmentCodec:
    """Encodes :class:`SegmentPayload`: a tensor is named ``LAYER.PART``.

    Args:
        device: Where decoded tensors live.
        numbers: How states and transitions are written. Checkpoints are always written as they are.
        keep_zeros: Write heads whose transition is zero, so that what is read needs no copy.
    """

    def __init__(
        self, device: torch.device | str = "cpu", numbers: Numbers = "float32", *, keep_zeros: bool = False
    ) -> None:
        self._device = torch.device(device)
        self._numbers = numbers
        self._keep_zeros = keep_zeros

    def encode(self, payload: Payload) -> tuple[dict[str, Any], dict[str, RawTensor]]:
        assert isinstance(payload, SegmentPayload)
        numbers: Numbers = "float32" if payload.is_checkpoint else self._numbers
        layers: list[int | None] = []
        tensors: dict[str, Tensor] = {}
        factors = payload.factors if isinstance(payload, FactoredPayload) else (None,) * len(payload.layers)
        for i, layer in enumerate(payload.layers):
            if isinstance(layer, LinearPayload):
                layers.append(None)
                tensors |= _linear_parts(f"{i}.", layer, factors[i], numbers, keep_zeros=self._keep_zeros)
            else:
                layers.append(layer.position)
                tensors |= {f"{i}.keys": layer.keys, f"{i}.values": layer.values}
        described = {"length": payload.length, "is_checkpoint": payload.is_checkpoint, "positions": layers}
        return described, {name: to_raw(tensor) for name, tensor in tensors.items()}

    def decode(self, described: Mapping[str, Any], tensors: Mapping[str, RawTensor]) -> SegmentPayload:
        """The payload, its tensors without a copy where they stay on the CPU as they were written."""
        # A view would keep the whole file alive, with packed parts that were unpacked and are needed no more.
        share = all(name.partition(".")[2] in _UNPACKED for name in tensors)
        layers: list[LinearPayload | AttentionPayload] = []
        factors: list[LowRank | None] = []
        for i, position in enumerate(described["positions"]):
            parts = {
                name.partition(".")[2]: from_raw(raw).to(self._device, copy=not share)
                for name, raw in tensors.items()
                if name.startswith(f"{i}.")
            }
            factors.append(_low_rank(parts))
            if position is None:
                layers.append(_linear_payload(parts, factors[i]))
            else:
                layers.append(AttentionPayload(parts["keys"], parts["values"], int(position)))
        length, is_checkpoint = int(described["length"]), bool(described["is_checkpoint"])
        if any(factors):
            return FactoredPayload(tuple(layers), length, is_checkpoint, tuple(factors))
        return SegmentPayload(tuple(layers), length, is_checkpoint)


def _linear_parts(
    prefix: str, layer: LinearPayload, low: LowRank | None, numbers: Numbers, *, keep_zeros: bool
) -> dict[str, Tensor]:
    parts = {f"{prefix}conv_tail": layer.conv_tail}
    parts |= _packed(f"{prefix}end_state", layer.end_state, numbers)
    transition = layer.transition
    if transition is None:
        return parts
    whole = transition.dim() != 3 or (keep_zeros and low is None)
    kept = None if whole else transition.flatten(1).abs().amax(1) != 0
    if kept is not None and low is not None:
        kept[low.heads.long()] = False
        parts |= {f"{prefix}{name}": getattr(low, name.removeprefix("low_")) for name in _LOW}
        parts |= _packed(f"{prefix}low_left", low.left, numbers) | _packed(f"{prefix}low_right", low.right, numbers)
    if kept is not None and not kept.all():
        parts[f"{prefix}heads"] = kept.nonzero().flatten().to(torch.int32)
        transition = transition[kept]
    return parts | _packed(f"{prefix}transition", transition, numbers if transition.dim() == 3 else "float32")


def _linear_payload(parts: Mapping[str, Tensor], low: LowRank | None) -> LinearPayload:
    end_state, transition = _unpacked(parts, "end_state"), _unpacked(parts, "transition")
    if end_state is None:
        raise KeyError("end_state")
    if "heads" in parts and transition is not None:
        whole = transition.new_zeros(end_state.shape[0], *transition.shape[1:])
        transition = whole.index_copy(0, parts["heads"].long(), transition)
        if low is not None:
            transition = transition.index_copy(0, low.heads.long(), low.dense())
    return LinearPayload(transition, end_state, parts["conv_tail"])


def _low_rank(parts: Mapping[str, Tensor]) -> LowRank | None:
    left, right = _unpacked(parts, "low_left"), _unpacked(parts, "low_right")
    return (
        None
        if left is None or right is None
        else LowRank(parts["low_heads"], parts["low_gammas"], parts["low_ranks"], left, right)
    )


def _packed(name: str, x: Tensor, numbers: Numbers) -> dict[str, Tensor]:
    """``[..., row]`` as one tensor, or as integers and an exponent of two for each row."""
    if x.dtype != torch.float32 or numbers == "float32":
        return {name: x}
    if numbers == "bfloat16":
        return {f"{name}_half": x.bfloat16()}
    largest = x.abs().amax(-1, keepdim=True)
    if not largest.isfinite().all():
        return {name: x}
    # frexp gives largest = f 2^e with f in [0.5, 1): largest / 2^(e - 7) is below 128, and must not exceed 127.
    exponent = torch.frexp(largest).exponent - 7
    exponent = torch.where(torch.ldexp(largest, -exponent) > 127, exponent + 1, exponent).clamp(-120, 120)
    integers = torch.ldexp(x, -exponent).round()
    return {f"{name}_integers": integers.to(torch.int8), f"{name}_exponents": exponent.to(torch.int8)}


def _unpacked(parts: Mapping[str, Tensor], name: str) -> Tensor | None:
    if f"{name}_half" in parts:
        return parts[f"{name}_half"].float()
    if f"{name}_integers" in parts:
        return torch.ldexp(parts[f"{name}_integers"].float(), parts[f"{name}_exponents"].int())
    return parts.get(name)


def to_raw(tensor: Tensor) -> RawTensor:
    """A tensor's bytes, on the CPU.

    Raises:
        KeyError: a dtype that no payload has.
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")
    return RawTensor(_NAMES[tensor.dtype], tuple(tensor.shape), data)


def from_raw(raw: RawTensor) -> Tensor:
    """The tensor over those bytes, which must be writable; they are not copied."""
    dtype = _DTYPES[raw.dtype]
    flat = torch.frombuffer(raw.data, dtype=dtype) if len(raw.data) else torch.empty(0, dtype=dtype)
    return flat.view(raw.shape)
