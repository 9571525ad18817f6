"""Matrix products of a float32 model on a CPU, by oneDNN.

PyTorch gives them to MKL, which has no AVX-512 path for processors that are not Intel's: there oneDNN takes half the
time. It reads the weight where it lies; nothing is packed or kept twice.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Multiply-adds: for fewer, setting the product up costs oneDNN more than it gains.
_MIN_PRODUCTS: Final = 1 << 21
_PRODUCT = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


class FastLinear(nn.Linear):
    """A linear layer whose product oneDNN computes where it can; gradients go through PyTorch's own."""

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
