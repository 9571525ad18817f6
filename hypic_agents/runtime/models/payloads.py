"""What a pass leaves for the store: payloads of built segments and checkpoints."""

from __future__ import annotations

from torch import Tensor

from hypic_agents.runtime.attention.mixer import AttentionOutputs
from hypic_agents.runtime.batch import PackedBatch, ReusedRun
from hypic_agents.runtime.linear.mixer import LinearOutputs
from hypic_agents.runtime.state import AttentionPayload, LinearPayload, LinearState, SegmentPayload


def built_payloads(batch: PackedBatch) -> list[SegmentPayload]:
    """Payloads of rows that build one: the last ``keep`` tokens, all computed with the row's true context.

    The end state is ``S_run - T S_begin``: what stood before the interior (head seam, conditioning prefix) is
    taken out again, so the payload is the interior's own affine map. A checkpoint keeps the state as it is.
    """
    layers: list[list[LinearPayload | AttentionPayload]] = [[] for _ in batch.rows]
    for i in range(len(batch.outputs)):
        outputs = batch.outputs[i]
        if isinstance(outputs, LinearOutputs):
            chain = outputs.chain
            ends = chain.end_state
            if chain.transition is not None and chain.begin_state is not None:
                ends = ends - chain.transition @ chain.begin_state
            for r, (row, made) in enumerate(zip(batch.rows, layers, strict=True)):
                transition = None if row.checkpoint or chain.transition is None else _own(chain.transition[r])
                end = chain.end_state[r] if row.checkpoint else ends[r]
                made.append(LinearPayload(transition, _own(end), _own(outputs.tails[r])))
        else:
            assert isinstance(outputs, AttentionOutputs)
            for r, (row, made) in enumerate(zip(batch.rows, layers, strict=True)):
                stop = batch.row_slices[r].stop
                keep = slice(stop - row.keep, stop)
                made.append(AttentionPayload(_own(outputs.keys[keep]), _own(outputs.values[keep]), row.end - row.keep))
    return [SegmentPayload(tuple(made), row.keep, row.checkpoint) for row, made in zip(batch.rows, layers, strict=True)]


def captured_states(batch: PackedBatch) -> dict[int, list[LinearState | None]]:
    """By row, the states at its captured run end, an item a layer (None for full attention); one capture a row."""
    rows = [r for step in batch.steps for r in step.capture]
    states: dict[int, list[LinearState | None]] = {r: [] for r in rows}
    for i in range(len(batch.outputs)):
        outputs = batch.outputs[i]
        for at, r in enumerate(rows):
            state = None
            if isinstance(outputs, LinearOutputs):
                assert outputs.chain.captured is not None
                state = LinearState(outputs.chain.captured[at], outputs.capture_tails[at])
            states[r].append(state)
    return states


def captured_payloads(batch: PackedBatch) -> list[SegmentPayload]:
    """Checkpoints at the captured run ends of a pass of one row; each holds its own run's keys and values."""
    assert len(batch.rows) == 1, "captures are taken from passes of one row"
    made: list[SegmentPayload] = []
    at = 0
    for element in batch.rows[0].elements:
        if isinstance(element, ReusedRun):
            continue
        at += element.length
        if not element.capture:
            continue
        keep = slice(at - element.length, at)
        layers: list[LinearPayload | AttentionPayload] = []
        for i in range(len(batch.outputs)):
            outputs = batch.outputs[i]
            if isinstance(outputs, LinearOutputs):
                assert outputs.chain.captured is not None
                state = outputs.chain.captured[len(made)]
                layers.append(LinearPayload(None, _own(state), _own(outputs.capture_tails[len(made)])))
            else:
                assert isinstance(outputs, AttentionOutputs)
                layers.append(AttentionPayload(_own(outputs.keys[keep]), _own(outputs.values[keep]), element.start))
        made.append(SegmentPayload(tuple(layers), element.length, True))
    return made


def _own(x: Tensor) -> Tensor:
    """A tensor that keeps no larger batch alive; views stay where gradients flow."""
    return x if x.requires_grad else x.clone()
