"""Modules that stand in for transformers' own: names, weights and copies stay as they were."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hypic_agents.runtime.batch import LiveRun, Row
from hypic_agents.runtime.models.adopt import Blockwise
from hypic_agents.runtime.models.random_init import random_model
from hypic_agents.runtime.models.registry import wrap
from tests.runtime.models import FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_the_state_dict_stays_as_it_was(family: str) -> None:
    hf = random_model(f"random:{family}:2m")
    before = {name: value.data_ptr() for name, value in hf.state_dict().items()}
    parameters = len(list(hf.parameters()))
    wrap(hf)
    assert {name: value.data_ptr() for name, value in hf.state_dict().items()} == before
    assert len(list(hf.parameters())) == parameters
    layer = hf.model.layers[0]
    assert isinstance(layer.input_layernorm, nn.Module)
    assert isinstance(layer.input_layernorm, Blockwise)
    assert isinstance(layer.mlp, Blockwise) == (family == "qwen3_5")


def test_a_copy_has_weights_of_its_own() -> None:
    model = wrap(random_model("random:qwen3_5:2m"))
    other = copy.deepcopy(model)
    row = [Row((LiveRun(0, (1, 2, 3)),))]
    with torch.no_grad():
        expected = model.forward(row).logits
        for parameter in other.hf.parameters():
            parameter.zero_()
        assert torch.equal(model.forward(row).logits, expected)
        assert not other.forward(row).logits.any()
