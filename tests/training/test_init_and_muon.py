from __future__ import annotations

import pytest
import torch
import toy

from training.checkpoint import build_model, build_optimisers
from training.config import TrainConfig
from training.init import decay_parameters, memory_tokens
from training.muon import Muon, orthogonalise


def test_decays_give_the_memories_asked_for() -> None:
    memories = (20.0, 150.0, 1500.0, 5000.0)
    assert memory_tokens(*decay_parameters(memories)).tolist() == pytest.approx(memories, rel=1e-3)


def test_initial_statistics_and_size() -> None:
    config = TrainConfig()
    model = build_model(toy.make_tokenizer(), config, seed=3)
    assert model.model.embed_tokens.weight.std().item() == pytest.approx(0.5, rel=0.05)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.model.layers[0].mlp.up_proj.weight.std().item() == pytest.approx(0.06, rel=0.05)
    conv = model.model.layers[0].linear_attn.conv1d.weight
    assert conv.abs().max() <= 0.5
    assert conv.std().item() == pytest.approx(0.5 / 3**0.5, rel=0.1)
    assert model.config.layer_types[-1] == "linear_attention"
    assert 0.9e6 < sum(p.numel() for p in model.parameters()) < 1.3e6


def test_the_seed_decides_the_weights() -> None:
    tokenizer = toy.make_tokenizer()
    first, again, other = (build_model(tokenizer, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("shape", [(2, 32, 32), (1, 8, 40), (3, 40, 8)], ids=str)
def test_orthogonalise_pushes_singular_values_to_one(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
    assert values.min() > 0.3
    assert values.max() < 1.3


def test_muon_step_has_the_length_of_its_learning_rate() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(16, 64))
    weight.grad = 1e-4 * torch.randn(16, 64)
    Muon([weight], lr=0.1).step()
    assert torch.linalg.svdvals(weight.detach()).mean().item() == pytest.approx(0.1, rel=0.2)


def test_every_parameter_has_one_optimiser_and_only_weights_decay() -> None:
    model = build_model(toy.make_tokenizer())
    muon, adam = build_optimisers(model, TrainConfig())
    groups = muon.param_groups + adam.param_groups
    owned = [id(p) for group in groups for p in group["params"]]
    assert sorted(owned) == sorted(id(p) for p in model.parameters())
    assert all(p.ndim == 2 for group in groups if group["weight_decay"] for p in group["params"])
