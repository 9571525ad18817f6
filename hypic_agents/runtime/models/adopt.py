"""Modules that take the place of transformers' own and share their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hypic_agents.runtime.ops.blockwise import is_blocked, over_blocks


def adopt(module: nn.Module, source: nn.Module) -> None:
    """Share parameters and submodules under their own names, so that the model's state dict stays as it was."""
    for name, parameter in source.named_parameters(recurse=False):
        module.register_parameter(name, parameter)
    for name, child in source.named_children():
        module.add_module(name, child)
    for name, buffer in source.named_buffers(recurse=False):
        module.register_buffer(name, buffer)
    module.train(source.training)


class Blockwise:
    """Mixed into the class of a module that treats every token alone: long passes go through it in blocks."""

    def forward(self, hidden: Tensor) -> Tensor:
        """``[1, T, D]`` to ``[1, T, D]``."""
        whole: Callable[[Tensor], Tensor] = super().forward  # type: ignore[misc]
        if not is_blocked(hidden.shape[1], hidden.device):
            return whole(hidden)
        return over_blocks(whole, hidden.squeeze(0)).unsqueeze(0)


def run_blockwise(layer: Any) -> None:
    """Let a decoder layer's norms and MLP take long passes in blocks, in place.

    The modules stay the same objects under the same names, so that adapters and hooks find them. Experts stay whole:
    each sees few of a pass's tokens already.
    """
    for name in ("input_layernorm", "post_attention_layernorm", "mlp"):
        module = getattr(layer, name)
        if not hasattr(module, "experts") and not isinstance(module, Blockwise):
            module.__class__ = _blockwise(type(module))


_made: dict[type, type] = {}


def _blockwise(kind: type) -> type:
    # One class for each, so that modules of equal classes stay of equal classes.
    return _made.setdefault(kind, type(f"Blockwise{kind.__name__}", (Blockwise, kind), {}))
