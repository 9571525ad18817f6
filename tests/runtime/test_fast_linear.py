"""The fast product of linear layers: the same numbers, the same parameters."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hypic_agents.runtime.models import fast_linear
from hypic_agents.runtime.models.fast_linear import FastLinear, is_intel, use_fast_linear


class Quantised(nn.Linear):
    pass


@pytest.mark.parametrize("product", [fast_linear._ONEDNN, None], ids=["onednn", "pytorch"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (700,), (1, 700), (0,)], ids=str)
def test_the_product_is_the_same(
    product: Any, bias: bool, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_linear, "_PRODUCT", product)
    plain = nn.Linear(96, 64, bias=bias)
    fast = copy.deepcopy(plain)
    use_fast_linear(fast)
    assert type(fast) is FastLinear
    x = torch.randn(*shape, 96)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), plain(x))


def test_long_products_go_to_onednn_and_short_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    if fast_linear._ONEDNN is None:
        pytest.skip("this PyTorch has no oneDNN")
    calls: list[int] = []
    product = fast_linear._ONEDNN

    def counted(*args: object) -> object:
        calls.append(1)
        return product(*args)

    monkeypatch.setattr(fast_linear, "_PRODUCT", counted)
    layer = nn.Linear(256, 256)
    use_fast_linear(layer)
    with torch.no_grad():
        layer(torch.randn(1, 256))
        assert not calls
        layer(torch.randn(64, 256))
        assert calls
        calls.clear()
        layer.bfloat16()(torch.randn(64, 256).bfloat16())
        assert not calls
    with torch.no_grad(), pytest.raises(RuntimeError, match="dtype"):
        layer.float()(torch.randn(64, 256).bfloat16())
    assert not calls, "PyTorch's own product says what is wrong"
    layer.float()(torch.randn(64, 256))
    assert not calls, "gradients go through PyTorch's own product"


def test_parameters_stay_and_other_kinds_are_left_alone() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Quantised(4, 4)))
    before = dict(module.state_dict())
    use_fast_linear(module)
    assert [type(m) for m in module.modules()][1:] == [FastLinear, nn.Sequential, Quantised]
    assert list(module.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_pytorch_keeps_the_product_on_processors_of_intel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nvendor_id\t: GenuineIntel\n")
    assert is_intel(info)
    info.write_text("processor\t: 0\nvendor_id\t: AuthenticAMD\n")
    assert not is_intel(info)
    monkeypatch.setattr("platform.processor", lambda: "Intel64 Family 6 Model 85 Stepping 4, GenuineIntel")
    assert is_intel(tmp_path / "none")
    monkeypatch.setattr("platform.processor", lambda: "arm")
    assert not is_intel(tmp_path / "none")
    assert fast_linear._PRODUCT is None or not (torch.backends.mkl.is_available() and is_intel())
