"""The short causal convolution over packed runs, each continuing from its own history."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hypic_agents.runtime.batch import PackedBatch
from hypic_agents.runtime.state import LinearPayload, LinearState, SegmentPayload


def conv_sources(inputs: Tensor, batch: PackedBatch, layer: int) -> Tensor:
    """All rows the conv may look at: zero rows, conv tails of past and payloads, live inputs ``[T, C]``."""
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
    width = batch.tail_sources.shape[-1]
    if not tails:
        return F.pad(inputs, (0, 0, width, 0))
    return torch.cat((inputs.new_zeros(width, inputs.shape[-1]), *(t.to(inputs.dtype) for t in tails), inputs))


def causal_conv(sources: Tensor, weight: Tensor, bias: Tensor | None, batch: PackedBatch) -> Tensor:
    """Depthwise causal conv of every live token, ``[T, C]``, in the dtype of ``sources``.

    Args:
        sources: From :func:`conv_sources`.
        weight: ``[C, conv_width]``.
        bias: ``[C]`` or None.
    """
    taps = weight.shape[-1]
    # float32 accumulation: four products in bfloat16 would round three times.
    if batch.straight:
        extended = sources[-(len(batch.token_ids) + taps - 1) :].float()
    else:
        extended = sources.index_select(0, batch.history).float()
    windows = extended.shape[0] - (taps - 1)
    columns = weight.float().t().contiguous()  # read once a token: strided, that takes twice as long
    out = extended[:windows] * columns[0]
    for j in range(1, taps):
        # In place where no gradient needs the sum so far: a fresh buffer each time costs three times as much.
        sink = None if out.requires_grad else out
        out = torch.addcmul(out, extended[j : j + windows], columns[j], out=sink)
    out = out if batch.straight else out.index_select(0, batch.conv_pick)
    if bias is not None:
        out = out + bias.float()
    return out.to(sources.dtype)
