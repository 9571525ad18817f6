"""Loading models: a path, a hub name, ``tiny``, ``tiny-plain`` or ``random:FAMILY[:SIZE]``; our mixers go in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from hypic_agents.errors import ModelNotFound, UnsupportedModel
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.models.hybrid import HybridModel, install_mixers
from hypic_agents.runtime.models.qwen3_5 import GatedAttentionMixer, GatedDeltaMixer, Qwen3NextDeltaMixer
from hypic_agents.runtime.models.random_init import random_model
from hypic_agents.runtime.models.self_test import probe_logits, require_agreement

_BUNDLED_AT = Path(__file__).resolve().parents[2] / "models_data"
TINY = _BUNDLED_AT / "hypic-tiny"
# The same model, trained without ever seeing documents isolated: what reuse costs a model that was not prepared for it.
BUNDLED = {"tiny": TINY, "tiny-plain": _BUNDLED_AT / "hypic-tiny-plain"}


@dataclass(frozen=True, slots=True)
class Family:
    """The mixers of one architecture."""

    linear: type
    attention: type


FAMILIES: dict[str, Family] = {
    "qwen3_next": Family(Qwen3NextDeltaMixer, GatedAttentionMixer),
    "qwen3_5_text": Family(GatedDeltaMixer, GatedAttentionMixer),
    "qwen3_5_moe_text": Family(GatedDeltaMixer, GatedAttentionMixer),
}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, where its tokenizer lies, and what names its weights in keys."""

    model: HybridModel
    tokenizer_path: str
    fingerprint: str
    name: str


def load_model(name: str, config: EngineConfig) -> LoadedModel:
    """Load and wrap a model.

    Raises:
        ModelNotFound: nothing at that path or name, or it cannot be reached.
        UnsupportedModel: an architecture without an adapter.
        ModelMismatch: our forward disagrees with transformers' own on two tokens.
    """
    device = _device(config.device)
    dtype = _dtype(config.model_dtype, device)
    with _quiet_transformers():
        if name.startswith("random:"):
            hf, tokenizer_path = random_model(name), str(TINY)
        else:
            path = str(BUNDLED.get(name, name))
            hf, tokenizer_path = _pretrained(path, dtype), path
        hf = hf.to(device=device, dtype=dtype).eval().requires_grad_(False)
        model = wrap(hf, self_test=config.self_test)
    return LoadedModel(model, tokenizer_path, _fingerprint(hf, dtype), name)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No notes about slow fallbacks of the mixers we replace, and no bar for files that load in a moment."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()


def wrap(hf: Any, *, self_test: bool = True) -> HybridModel:
    """Replace the mixers of a transformers causal LM (in place; its state dict stays as it was).

    Raises:
        UnsupportedModel: no adapter for ``config.model_type``.
    """
    family = FAMILIES.get(hf.config.get_text_config().model_type)
    if family is None:
        raise _unsupported(hf.config.model_type)
    before = probe_logits(hf) if self_test else None
    install_mixers(hf.model, family.linear, family.attention)
    model = HybridModel(hf, hf.model, hf.config.get_text_config())
    if before is not None:
        require_agreement(model, before)
    return model


def _pretrained(path: str, dtype: torch.dtype) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        local = Path(path)
        if local.exists() and "model_type" not in _read_config(local):
            raise UnsupportedModel(f"{path!r} holds no model config with a model_type") from error
        if local.exists() and "model_type" in _read_config(local):
            raise _unsupported(_read_config(local)["model_type"]) from error
        raise ModelNotFound(
            f"no model at {path!r}: give a directory with config.json and safetensors, a hub name that this machine "
            f"can reach, 'tiny', 'tiny-plain', or 'random:FAMILY[:SIZE]' ({str(error).splitlines()[0]})"
        ) from error
    text = config.get_text_config()
    if text.model_type not in FAMILIES:
        raise _unsupported(config.model_type)
    try:
        return AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelNotFound(f"the weights of {path!r} cannot be read: {str(error).splitlines()[0]}") from error


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((path / "config.json").read_text()))
    except (OSError, ValueError):
        return {}


def _unsupported(model_type: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"no adapter for the architecture {model_type!r}; supported are qwen3_next, qwen3_5 and qwen3_5_moe"
    )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def _fingerprint(hf: Any, dtype: torch.dtype) -> str:
    """Config, dtype and a sample of every parameter: cheap, and different for different weights."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(hf.config.to_dict(), sort_keys=True, default=str).encode())
    digest.update(str(dtype).encode())
    for name, parameter in sorted(hf.named_parameters()):
        flat = parameter.detach().flatten()
        sample = flat[:: max(1, flat.numel() // 256)].float().cpu().numpy()
        digest.update(name.encode() + sample.tobytes())
    return digest.hexdigest()
