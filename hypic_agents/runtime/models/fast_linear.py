"""Matrix products of a float32 model on a CPU, by the faster of two libraries.

PyTorch gives them to MKL, which has no AVX-512 path for processors that are not Intel's: there oneDNN takes half the
time. On Intel's, MKL is up to twice as fast. Both read the weight where it lies; nothing is packed or kept twice.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Multiply-adds: for fewer, setting the product up costs oneDNN more than it gains.
_MIN_PRODUCTS: Final = 1 << 21
_CPU_INFO: Final = Path("/proc/cpuinfo")
_FIRST_CPU: Final = 1024


def is_intel(cpu_info: Path = _CPU_INFO) -> bool:
    """Whether this machine's processor is Intel's, as far as it says so."""
    try:
        with cpu_info.open(encoding="utf-8", errors="replace") as lines:
            return "GenuineIntel" in lines.read(_FIRST_CPU)
    except OSError:
        return "GenuineIntel" in platform.processor()  # where there is no such file


_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
_PRODUCT = None if torch.backends.mkl.is_available() and is_intel() else _ONEDNN


class FastLinear(nn.Linear):
    """A linear layer whose product oneDNN computes where that is faster; gradients go through PyTorch's own."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as nn.Linear names it
        if input.numel() * self.out_features < _MIN_PRODUCTS or torch.is_grad_enabled():
            return F.linear(input, self.weight, self.bias)
        weight = self.weight
        is_float32 = input.dtype == weight.dtype == torch.float32
        if _PRODUCT is None or not is_float32 or weight.device.type != "cpu":
            return F.linear(input, weight, self.bias)
        product: Tensor = _PRODUCT(input, weight, self.bias, "none", [], "")
        return product


def use_fast_linear(module: nn.Module) -> None:
    """Give all plain linear layers in ``module`` their fast product, in place: parameters, names and hooks stay."""
    for one in module.modules():
        if type(one) is nn.Linear:
            one.__class__ = FastLinear
