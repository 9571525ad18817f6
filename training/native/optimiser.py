"""AdamW on float32 copies of the weights: in bfloat16, small updates would round to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from training.native.config import NativeConfig

_NO_DECAY = ("norm", "A_log", "dt_bias", "conv1d", "bias")


class Optimiser:
    """Clips, then steps. Weights that are float32 already are their own copies."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], config: NativeConfig) -> None:
        self._clip, self._peak = config.clip, config.lr
        self._parameters = dict(parameters)
        self._masters: dict[str, Tensor] = {
            name: p if p.dtype == torch.float32 else nn.Parameter(p.detach().float()) for name, p in parameters.items()
        }
        plain = {name for name in parameters if any(part in name for part in _NO_DECAY)}
        groups = [
            {"params": [m for n, m in self._masters.items() if n not in plain], "weight_decay": config.weight_decay},
            {"params": [m for n, m in self._masters.items() if n in plain], "weight_decay": 0.0},
        ]
        self._adam = torch.optim.AdamW([g for g in groups if g["params"]], lr=config.lr, betas=config.betas)

    def step(self, lr_share: float) -> bool:
        """One update at a share of the peak learning rate; False, and no update, where a gradient is not finite."""
        for name, parameter in self._parameters.items():
            master = self._masters[name]
            if master is not parameter:
                master.grad = None if parameter.grad is None else parameter.grad.float()
        norm = torch.nn.utils.clip_grad_norm_(self._masters.values(), self._clip)
        finite = bool(torch.isfinite(norm))
        if finite:
            for group in self._adam.param_groups:
                group["lr"] = self._peak * lr_share
            self._adam.step()
            self._write_back()
        for name, parameter in self._parameters.items():
            parameter.grad = self._masters[name].grad = None
        return finite

    def state(self) -> dict[str, Any]:
        return {"weights": {n: m.detach() for n, m in self._masters.items()}, "adam": self._adam.state_dict()}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        for name, master in self._masters.items():
            master.copy_(state["weights"][name])
        self._adam.load_state_dict(state["adam"])
        self._write_back()

    @torch.no_grad()
    def _write_back(self) -> None:
        for name, parameter in self._parameters.items():
            if self._masters[name] is not parameter:
                parameter.copy_(self._masters[name])
