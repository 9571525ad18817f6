"""Build the model and its optimisers; write and read the state of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training.config import TrainConfig, model_config
from training.curriculum import Curriculum
from training.init import initialise
from training.muon import Muon


def build_model(tokenizer: Any, config: TrainConfig | None = None, seed: int = 0) -> Any:
    """The model of the recipe in float32, initialised from ``seed``."""
    from transformers import Qwen3_5ForCausalLM

    config = config or TrainConfig()
    shape = model_config(
        config,
        vocab_size=len(tokenizer),
        eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3_5ForCausalLM(shape).float()
    initialise(model, config, seed)
    return model


def build_optimisers(model: Any, config: TrainConfig) -> tuple[Muon, torch.optim.AdamW]:
    """Muon for the matrices, AdamW for the rest; of that only the embeddings decay."""
    matrices, embeddings, rest = [], [], []
    for name, parameter in model.named_parameters():
        if "embed_tokens" in name:
            embeddings.append(parameter)
        else:
            gate = "in_proj_a" in name or "in_proj_b" in name  # a few rows of gates, no matrix to orthogonalise
            (matrices if parameter.ndim == 2 and not gate else rest).append(parameter)
    adam = torch.optim.AdamW(
        [
            {"params": embeddings, "weight_decay": config.weight_decay},
            {"params": rest, "weight_decay": 0.0},
        ],
        lr=config.adam_lr,
        betas=config.adam_betas,
    )
    return Muon(matrices, config.muon_lr, config.muon_momentum, config.weight_decay), adam


@dataclass(slots=True)
class Run:
    """All that changes while training. Random choices follow from seed, worker and step alone."""

    model: Any
    muon: Muon
    adam: torch.optim.AdamW
    curriculum: Curriculum
    step: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0

    def save(self, path: Path) -> None:
        """Write atomically: an interrupted write leaves the previous checkpoint."""
        state = {
            "model": self.model.state_dict(),
            "muon": self.muon.state_dict(),
            "adam": self.adam.state_dict(),
            "curriculum": self.curriculum.state(),
            "step": self.step,
            "tokens": self.tokens,
            "elapsed_s": self.elapsed_s,
        }
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def load(self, path: Path) -> None:
        """Continue from what ``save`` wrote."""
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        self.curriculum.restore(state["curriculum"])
        self.step, self.tokens, self.elapsed_s = state["step"], state["tokens"], state["elapsed_s"]
