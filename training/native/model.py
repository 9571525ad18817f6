"""A checkpoint made ready for training: the engine's mixers over transformers' weights, all of them or adapters."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from hypic_agents.errors import HypicError, InvalidInput
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.models.registry import load_model
from training.native.config import NativeConfig

# Projections of token mixing and of dense MLPs in the supported families. Where a layer has experts, adapters stay on
# token mixing: transformers keeps all experts of a layer in one tensor, and peft takes the names of a shared expert's
# projections for theirs.
MIXING: Final = (
    "in_proj_qkv", "in_proj_qkvz", "in_proj_z", "in_proj_b", "in_proj_a", "in_proj_ba", "out_proj",
    "q_proj", "k_proj", "v_proj", "o_proj",
)  # fmt: skip
MLP: Final = ("gate_proj", "up_proj", "down_proj")


@dataclass(slots=True)
class Trainable:
    """A model in training.

    Attributes:
        hf: transformers' model with our mixers. With adapters, its projections are wrapped in place.
        model: The packed forward pass over it.
        tokenizer: Its tokenizer.
        tokenizer_path: Where that was loaded from.
        name: What was asked for.
        adapters: The peft model around ``hf``, or None.
        base: A frozen copy of the weights that the run began with, where a teacher needs one.
    """

    hf: Any
    model: HybridModel
    tokenizer: ChatTokenizer
    tokenizer_path: str
    name: str
    adapters: Any = None
    base: HybridModel | None = None

    def parameters(self) -> dict[str, nn.Parameter]:
        """What is trained, by name."""
        return {name: p for name, p in self.hf.named_parameters() if p.requires_grad}

    @contextmanager
    def teacher(self, *, base: bool) -> Iterator[HybridModel]:
        """The model whose full recompute is the truth: as it is now, or as it was at the beginning."""
        with torch.no_grad():
            if not base:
                yield self.model
            elif self.adapters is None:
                assert self.base is not None
                yield self.base
            else:
                with self.adapters.disable_adapter():
                    yield self.model


def load_trainable(name: str, config: NativeConfig, *, dtype: str = "auto", device: str = "auto") -> Trainable:
    """Load a checkpoint as the engine does, and make its weights, or adapters on them, trainable.

    Raises:
        ModelNotFound, UnsupportedModel, ModelMismatch: see :mod:`hypic_agents.errors`.
        InvalidInput: a device that this machine lacks.
        HypicError: adapters without peft.
    """
    if device != "auto":
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise InvalidInput(f"device={device!r} cannot be used here: {str(error).splitlines()[0]}") from error
    if config.lora and find_spec("peft") is None:
        raise HypicError("adapters need peft, which is in the extra 'tune': pip install 'hypic-agents[tune]'")
    loaded = load_model(name, EngineConfig(model_dtype=dtype, device=device))
    hf = loaded.model.hf
    tokenizer = ChatTokenizer.from_pretrained(loaded.tokenizer_path)
    made = Trainable(hf, packed(hf), tokenizer, loaded.tokenizer_path, name)
    if config.lora:
        made.adapters = _adapted(hf, config, name if name.startswith("random:") else loaded.tokenizer_path)
    else:
        if config.distill and config.teacher == "base":
            made.base = packed(copy.deepcopy(hf))
        hf.requires_grad_(True)
    if config.recompute_layers:
        hf.activation_checkpointing_enable()
    hf.train()
    return made


def packed(hf: Any) -> HybridModel:
    """A forward pass of its own over shared weights: tables that inference makes must not meet a gradient."""
    return HybridModel(hf, hf.model, hf.config.get_text_config())


def _adapted(hf: Any, config: NativeConfig, base: str) -> Any:
    from peft import LoraConfig, get_peft_model

    leaves = {name.rpartition(".")[2] for name, _ in hf.named_modules()}
    targets = sorted(leaves.intersection(MIXING if "experts" in leaves else (*MIXING, *MLP)))
    settings = LoraConfig(r=config.lora, lora_alpha=2 * config.lora, target_modules=targets, bias="none")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft still asks by a name that transformers has renamed.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        torch.manual_seed(config.seed)
        adapters = get_peft_model(hf, settings)
    adapters.peft_config["default"].base_model_name_or_path = base
    return adapters


def save_adapters(made: Trainable, directory: Path) -> None:
    """Write the adapters in peft's form; they load onto the untouched checkpoint."""
    made.adapters.save_pretrained(directory, save_embedding_layers=False)


def save_model(made: Trainable, directory: Path) -> None:
    """Write weights (adapters merged into them, which ends their training), configuration and tokenizer.

    Raises:
        InvalidInput: the directory cannot be written.
    """
    from transformers import AutoTokenizer

    if made.adapters is not None:
        made.hf = made.adapters.merge_and_unload()
        made.adapters, made.model = None, packed(made.hf)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write {directory}: {error.strerror or error}") from error
    with _no_bar():
        made.hf.save_pretrained(directory)
    AutoTokenizer.from_pretrained(made.tokenizer_path).save_pretrained(directory)


@contextmanager
def _no_bar() -> Iterator[None]:
    """No progress bar in the middle of a log."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
