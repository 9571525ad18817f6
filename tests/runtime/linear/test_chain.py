"""The chain of a layer over packed rows."""

from __future__ import annotations

import random

import pytest
import torch

from hypic_agents.runtime.batch import LiveRun, Row
from hypic_agents.runtime.linear.mixer import LinearOutputs
from tests.runtime.models import hybrid, segment_ids


@pytest.mark.parametrize("length", [128, 200, 500])
def test_a_transition_that_fades_ends_in_zeros_without_subnormal_numbers(length: int) -> None:
    """A product with subnormal numbers takes a CPU several times as long."""
    row = Row((LiveRun(0, segment_ids(random.Random(0), length), begin_transition=True),))
    with torch.inference_mode():
        outputs = hybrid("qwen3_5").forward([row]).batch.outputs
    transitions = [one.chain.transition for one in outputs.values() if isinstance(one, LinearOutputs)]
    found = torch.stack([one for one in transitions if one is not None]).abs()
    assert not ((found > 0) & (found < torch.finfo(torch.float32).tiny)).any()
    assert (found == 0).any()
    assert (found > 1e-6).any()
