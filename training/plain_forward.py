"""The ordinary causal pass through untouched transformers code: no isolation, one padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from training.sequences import ANSWER, DOCUMENT, Output, TrainSequence


def forward(
    model: Any,
    sequences: Sequence[TrainSequence],
    *,
    isolated: bool = False,
    head_seam: int = 0,  # noqa: ARG001 - the packed pass's signature
    tail_seam: int = 0,  # noqa: ARG001 - the packed pass's signature
    condition: bool = False,  # noqa: ARG001 - the packed pass's signature
) -> Output:
    """Logits of every position but each sequence's last. ``isolated`` must be False.

    Padding stands on the right, where neither causal attention nor the recurrence lets it be seen.
    """
    if isolated:
        raise NotImplementedError("the plain pass does not isolate documents")
    width = max(len(sequence.token_ids) for sequence in sequences)
    ids = torch.zeros(len(sequences), width, dtype=torch.long)
    kinds = torch.zeros(len(sequences), width, dtype=torch.uint8)
    real = torch.zeros(len(sequences), width, dtype=torch.bool)
    for row, sequence in enumerate(sequences):
        length = len(sequence.token_ids)
        ids[row, :length] = torch.tensor(sequence.token_ids)
        for start, end in sequence.spans:
            kinds[row, start:end] = DOCUMENT
        kinds[row, :length][torch.tensor(sequence.answer_mask)] = ANSWER
        real[row, 1:length] = True
    mask = attention_mask(sequences, width) if any(s.blind for s in sequences) else None
    masks = {"full_attention": mask, "linear_attention": None}
    hidden = model.model(input_ids=ids, attention_mask=masks, use_cache=False, chunk_size=32).last_hidden_state
    chosen = real[:, 1:]
    logits = model.lm_head(hidden[:, :-1][chosen])
    return Output(logits=logits, targets=ids[:, 1:][chosen], weights_kind=kinds[:, 1:][chosen])


def attention_mask(sequences: Sequence[TrainSequence], width: int) -> Tensor:
    """Who attends to whom, bool [B, 1, width, width]: causal, less what ``blind`` forbids."""
    mask = torch.ones(width, width, dtype=torch.bool).tril().repeat(len(sequences), 1, 1)
    for row, sequence in enumerate(sequences):
        for first, stop in sequence.blind:
            for start, end in sequence.spans:
                mask[row, first:stop, start:end] = False
    return mask[:, None]
