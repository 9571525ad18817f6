"""Per-token work in blocks."""

from __future__ import annotations

import pytest
import torch

from hypic_agents.runtime.ops.blockwise import BLOCK, is_blocked, over_blocks


@pytest.mark.parametrize("num_tokens", [1, BLOCK, BLOCK + 1, 3 * BLOCK - 1])
def test_blocks_give_what_the_whole_gives(num_tokens: int) -> None:
    seen: list[int] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return x[:, :2] * 3

    x = torch.arange(num_tokens * 3.0).view(num_tokens, 3)
    assert torch.equal(over_blocks(run, x), x[:, :2] * 3)
    assert max(seen) <= BLOCK
    assert sum(seen) == num_tokens


def test_only_long_passes_without_gradients_on_a_cpu_are_cut() -> None:
    cpu = torch.device("cpu")
    assert not is_blocked(10 * BLOCK, cpu)
    with torch.no_grad():
        assert is_blocked(2 * BLOCK, cpu)
        assert not is_blocked(2 * BLOCK - 1, cpu)
        assert not is_blocked(10 * BLOCK, torch.device("cuda"))
