"""Masks on logits: bit for bit what the rows' grammars allow, and nothing where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hypic_agents.core import SamplingParams
from hypic_agents.runtime.sampling import make_generator, mask_logits, sample


class Allowed:
    """Allows the tokens it is given."""

    def __init__(self, tokens: set[int]) -> None:
        self.tokens = tokens

    @property
    def forced(self) -> int | None:
        return min(self.tokens) if len(self.tokens) == 1 else None

    def allows(self, token_id: int) -> bool:
        return token_id in self.tokens

    def fill(self, row: NDArray[np.int32]) -> None:
        words = np.zeros(len(row), np.uint32)
        for token in self.tokens:
            words[token // 32] |= np.uint32(1 << token % 32)
        row[:] = words.view(np.int32)


@given(st.data(), st.integers(1, 70), st.integers(1, 4))
def test_forbidden_tokens_are_minus_infinity(data: st.DataObject, vocab: int, num_rows: int) -> None:
    row = st.sets(st.integers(0, vocab - 1))
    allowed = data.draw(st.lists(row, min_size=num_rows, max_size=num_rows))
    logits = torch.arange(num_rows * vocab, dtype=torch.float32).view(num_rows, vocab)
    masked = mask_logits(logits.clone(), [Allowed(one) for one in allowed])
    for i, one in enumerate(allowed):
        for token in range(vocab):
            assert masked[i, token] == (logits[i, token] if token in one else float("-inf"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_keep_the_logits_in_place_and_in_their_precision(dtype: torch.dtype) -> None:
    logits = torch.zeros(2, 8, dtype=dtype)
    assert mask_logits(logits, [Allowed({1}), Allowed({2})]) is logits
    assert logits.dtype == dtype


def test_a_forced_token_is_taken_without_a_draw() -> None:
    params, logits = SamplingParams(temperature=1.0, seed=3), torch.zeros(1, 40)
    source = make_generator(params)
    assert source is not None
    before = source.get_state()
    assert sample(logits, [params], [source], [Allowed({17})]) == [17]
    assert torch.equal(source.get_state(), before)


@given(st.data(), st.integers(1, 40), st.integers(1, 4))
def test_a_mask_that_is_left_out_changes_no_token(data: st.DataObject, vocab: int, num_rows: int) -> None:
    row = st.none() | st.sets(st.integers(0, vocab - 1), min_size=1)
    masks = [
        None if one is None else Allowed(one) for one in data.draw(st.lists(row, min_size=num_rows, max_size=num_rows))
    ]
    hot = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=num_rows, max_size=num_rows))
    params = [SamplingParams(temperature=one, seed=3) for one in hot]
    levels = data.draw(st.lists(st.integers(0, 3), min_size=num_rows * vocab, max_size=num_rows * vocab))
    logits = torch.tensor(levels, dtype=torch.float32).view(num_rows, vocab)  # with many ties
    first, second = ([make_generator(one) for one in params] for _ in range(2))
    chosen = sample(logits.clone(), params, first, masks)
    free = Allowed(set(range(vocab)))
    masked = mask_logits(logits.clone(), [mask or free for mask in masks])
    assert chosen == sample(masked, params, second, [None] * num_rows)
    for token, mask in zip(chosen, masks, strict=True):
        assert mask is None or token in mask.tokens
