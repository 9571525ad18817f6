"""The packed batch of a decode pass: one more token a row, so its index tensors depend on the number of rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from hypic_agents.runtime.batch import LiveRun, PackedBatch, Row, Step


def is_one_step(row: Row) -> bool:
    """Whether the row is one more token behind its past, as every row of a decode pass is."""
    element = row.elements[0]
    return (
        row.past is not None
        and len(row.elements) == 1
        and isinstance(element, LiveRun)
        and element.length == 1
        and not (element.capture or element.begin_transition)
        and row.logits_from == 1
    )


def pack_steps(rows: Sequence[Row], width: int, device: torch.device | str) -> PackedBatch:
    """What the general packing gives for rows of one token each, without a look at every row's indices."""
    count = len(rows)
    index = _step_index(count, width, torch.device(device))
    step = Step(chunk_rows=list(range(count)), chunks=slice(0, count))
    runs = [element for row in rows for element in row.elements if isinstance(element, LiveRun)]
    return PackedBatch(
        rows=tuple(rows),
        token_ids=torch.tensor([run.token_ids[0] for run in runs], dtype=torch.long, device=device),
        positions=torch.tensor([run.start for run in runs], dtype=torch.long, device=device),
        row_slices=tuple(slice(r, r + 1) for r in range(count)),
        history=index.history,
        conv_pick=index.conv_pick,
        tail_sources=index.tail_sources,
        capture_tails=index.tail_sources[:0],
        tail_bank=tuple(range(count)),
        grid=index.rows[:, None],
        ungrid=index.rows,
        steps=(step,),
        logit_index=index.rows,
        in_order=True,
        straight=count == 1,
        any_transition=False,
    )


@dataclass(frozen=True, slots=True)
class _StepIndex:
    rows: Tensor
    history: Tensor
    conv_pick: Tensor
    tail_sources: Tensor


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # or the tensors could not be used in a later pass that wants gradients
def _step_index(count: int, width: int, device: torch.device) -> _StepIndex:
    """Index tensors of a decode pass, which depend on its number of rows alone."""
    rows = torch.arange(count, device=device)
    tails = (width + width * rows)[:, None] + torch.arange(width, device=device)
    seen = torch.cat((tails, width + width * count + rows[:, None]), dim=1)
    return _StepIndex(rows, seen.flatten(), (width + 1) * rows, seen[:, 1:])
