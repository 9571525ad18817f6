"""Does a payload do what running on does? Checked where it is exact: one linear layer, given the same inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from hypic_agents.bench.agreement import relative_error
from hypic_agents.runtime.batch import LiveRun, ReusedRun, Row
from hypic_agents.runtime.linear.mixer import LinearMixer, LinearOutputs
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.policy import Compose
from hypic_agents.runtime.state import LinearPayload, LinearState, RowState, SegmentPayload


@torch.inference_mode()
def carry_error(
    mixer: LinearMixer,
    model: HybridModel,
    head: int,
    length: int,
    query: int,
    seed: int,
    compose: Compose = "transition",
) -> float:
    """Relative error of one layer's outputs for a query behind a reused interior.

    The interior's payload is built from a zero state behind its head seam; it is then reused behind a random state,
    which only its transition can carry on to the query.

    Args:
        mixer: A linear layer of ``model``.
        model: Packs the rows.
        head: Tokens of the head seam, at least the conv's width less one.
        length: Tokens of the interior.
        query: Tokens behind it.
        seed: Of inputs and state.
        compose: How the payload is composed; any rule but the transition is wrong.
    """
    weight = model.hf.get_input_embeddings().weight
    total = head + length + query
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(1, total, weight.shape[1], generator=generator).to(weight)

    build = Row((_run(0, head), _run(head, length, begin_transition=True)), logits_from=0, keep=length)
    _, built = _forward(mixer, model, build, hidden[:, : head + length])
    chain = built.chain
    assert chain.transition is not None and chain.begin_state is not None
    end_state = (chain.end_state - chain.transition @ chain.begin_state)[0]
    layers = [LinearPayload(chain.transition[0], end_state, built.tails[0])] * (mixer.layer_idx + 1)

    state = torch.randn(end_state.shape, generator=generator).to(end_state)
    past = _past(mixer, state, built.tails[0])
    reused = ReusedRun(head, length, SegmentPayload(tuple(layers), length), compose)
    behind = torch.cat((hidden[:, :head], hidden[:, head + length :]), dim=1)
    found, _ = _forward(mixer, model, Row((_run(0, head), reused, _run(head + length, query)), past=past), behind)
    expected, _ = _forward(mixer, model, Row((_run(0, total),), past=past), hidden)
    return relative_error(found[:, head:], expected[:, head + length :])


def _run(start: int, length: int, *, begin_transition: bool = False) -> LiveRun:
    return LiveRun(start, (0,) * length, begin_transition=begin_transition)


def _past(mixer: LinearMixer, state: Tensor, like_tail: Tensor) -> RowState:
    layer = LinearState(state, torch.zeros_like(like_tail))
    return RowState([layer] * (mixer.layer_idx + 1), 0)


def _forward(mixer: LinearMixer, model: HybridModel, row: Row, hidden: Tensor) -> tuple[Tensor, LinearOutputs]:
    batch = model.pack([row])
    outputs: Tensor = mixer(hidden, hypic_batch=batch)
    left = batch.outputs[mixer.layer_idx]
    assert isinstance(left, LinearOutputs)
    return outputs, left
