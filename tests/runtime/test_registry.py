"""Loading: real checkpoints by path, typed errors for everything else."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch

from hypic_agents.core import SamplingParams
from hypic_agents.errors import ModelMismatch, ModelNotFound, UnsupportedModel
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.models.random_init import random_config
from hypic_agents.runtime.models.registry import TINY, load_model
from hypic_agents.runtime.models.self_test import probe_logits, require_agreement
from tests.runtime.models import FAMILIES, hybrid, make_prompt, reference, segment_ids

CONFIG = EngineConfig(threads=1)


def save(family: str, directory: Path) -> None:
    reference(family).save_pretrained(directory)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(TINY / name, directory)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_directory_loads_and_answers_as_transformers(family: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    rng = random.Random(1)
    prompt = make_prompt([segment_ids(rng, 40)], system=segment_ids(rng, 20))
    with Engine.load(str(tmp_path), CONFIG) as engine:
        got = engine.generate(prompt, SamplingParams(max_tokens=1), "exact").token_ids
    with torch.inference_mode():
        expected = reference(family)(torch.tensor([prompt.token_ids])).logits[0, -1].argmax().item()
    assert got in ((expected,), ())  # an end-of-turn token shows no text


def test_a_vision_language_checkpoint_runs_its_text_model(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, Qwen3_5Config

    text = random_config("qwen3_5", "2m").to_dict()
    config = Qwen3_5Config(text_config=text)
    with torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    config.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), CONFIG)
    assert loaded.model.vocab_size == text["vocab_size"]


def test_fingerprints_tell_weights_apart(tmp_path: Path) -> None:
    save("qwen3_5", tmp_path)
    same, again = (load_model(str(tmp_path), CONFIG).fingerprint for _ in range(2))
    assert same == again
    half = load_model(str(tmp_path), EngineConfig(threads=1, model_dtype="bfloat16")).fingerprint
    assert half != same
    assert load_model("random:qwen3_5:2m", CONFIG).fingerprint != load_model("random:qwen3_next:2m", CONFIG).fingerprint


def test_an_architecture_without_an_adapter_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(UnsupportedModel, match=r"llama.*qwen3_5"):
        load_model(str(tmp_path), CONFIG)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "never_heard_of"}))
    with pytest.raises(UnsupportedModel, match="never_heard_of"):
        load_model(str(tmp_path), CONFIG)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no model at"):
        load_model(str(tmp_path / "nowhere"), CONFIG)
    save("qwen3_5", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ModelNotFound, match="weights"):
        load_model(str(tmp_path), CONFIG)
    for spec in ("random:nothing", "random:qwen3_5:900t", "random:"):
        with pytest.raises(UnsupportedModel):
            load_model(spec, CONFIG)


def test_the_self_test_notices_other_mathematics() -> None:
    require_agreement(hybrid("qwen3_5"), probe_logits(reference("qwen3_5")))
    with pytest.raises(ModelMismatch, match="disagrees"):
        require_agreement(hybrid("qwen3_5"), probe_logits(reference("qwen3_5")) + 0.1)
