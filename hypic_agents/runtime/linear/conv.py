"""The short causal convolution over packed runs, each continuing from its own history."""

from __future__ import annotations

import torch
from torch import Tensor

from hypic_agents.runtime.batch import PackedBatch
from hypic_agents.runtime.state import LinearPayload, LinearState, SegmentPayload


def conv_sources(inputs: Tensor, batch: PackedBatch, layer: int) -> Tensor:
    """All rows the conv may look at: live inputs ``[T, C]``, conv tails of past and payloads, one zero row."""
    tails = []
    for item in batch.tail_bank:
        if isinstance(item, SegmentPayload):
            payload = item.layers[layer]
            assert isinstance(payload, LinearPayload)
            tails.append(payload.conv_tail)
        else:
            past = batch.rows[item].past
            assert past is not None
            state = past.layers[layer]
            assert isinstance(state, LinearState)
            tails.append(state.conv_tail)
    zero = inputs.new_zeros(1, inputs.shape[-1])
    return torch.cat((inputs, *(t.to(inputs.dtype) for t in tails), zero))


def causal_conv(sources: Tensor, weight: Tensor, bias: Tensor | None, batch: PackedBatch) -> Tensor:
    """Depthwise causal conv of every live token, ``[T, C]``, in the dtype of ``sources``.

    Args:
        sources: From :func:`conv_sources`.
        weight: ``[C, conv_width]``.
        bias: ``[C]`` or None.
    """
    taps = weight.shape[-1]
    # float32 accumulation: four products in bfloat16 would round three times.
    extended = sources.index_select(0, batch.history).float()
    windows = extended.shape[0] - (taps - 1)
    columns = weight.float().t()
    out = extended[:windows] * columns[0]
    for j in range(1, taps):
        # In place where no gradient needs the sum so far: a fresh buffer each time costs three times as much.
        sink = None if out.requires_grad else out
        out = torch.addcmul(out, extended[j : j + windows], columns[j], out=sink)
    out = out.index_select(0, batch.conv_pick)
    if bias is not None:
        out = out + bias.float()
    return out.to(sources.dtype)
