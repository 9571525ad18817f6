"""From rows to a packed batch: chunk sizes, index tensors and the lockstep chain, all decided on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from hypic_agents.runtime.batch import LiveRun, PackedBatch, ReusedRun, Row, Step
from hypic_agents.runtime.ops.blockwise import BLOCK, is_blocked
from hypic_agents.runtime.pack_steps import is_one_step, pack_steps
from hypic_agents.runtime.state import RowState, SegmentPayload


@dataclass(frozen=True, slots=True)
class Chunk:
    """Packed tokens ``[start, stop)`` that one step of the chain takes."""

    start: int
    stop: int
    begin: bool
    capture: bool


def choose_chunk_size(lengths: Sequence[int]) -> int:
    """Tokens a chunk: fits the runs of the pass, so that short live spans are not padded to long chunks."""
    if all(n == 1 for n in lengths):
        return 1

    def cost(size: int) -> float:
        chunks = [-(-n // size) for n in lengths]
        # Padded slots cost their share of the products plus the quadratic part; each sequential step costs a launch.
        return sum(chunks) * size * (1 + size / 64) + 24 * sum(chunks)

    return min((16, 32, 64), key=cost)


def pack(rows: Sequence[Row], conv_width: int, device: torch.device | str = "cpu") -> PackedBatch:
    """Decide the whole pass. Pure bookkeeping: the only tensors made are index tensors."""
    if all(map(is_one_step, rows)):
        return pack_steps(rows, conv_width - 1, device)
    batch = _pack(rows, conv_width, device)
    if len(rows) == 1 and is_blocked(len(batch.token_ids), batch.token_ids.device):
        batch.blocks = tuple(_pack([row], conv_width, device) for row in cut_row(rows[0]))
    return batch


def cut_row(row: Row) -> list[Row]:
    """The row as rows of at most ``BLOCK`` live tokens, in order; the states between them are yet to be filled in."""
    groups: list[list[LiveRun | ReusedRun]] = [[]]
    room = BLOCK
    for element in row.elements:
        if isinstance(element, ReusedRun):
            groups[-1].append(element)
            continue
        at = 0
        while at < element.length:
            if not room:
                groups.append([])
                room = BLOCK
            stop = min(at + room, element.length)
            piece = LiveRun(
                element.start + at,
                element.token_ids[at:stop],
                capture=element.capture and stop == element.length,
                begin_transition=element.begin_transition and not at,
            )
            groups[-1].append(piece)
            room -= stop - at
            at = stop
    return [
        Row(tuple(group), past=RowState() if i else row.past, start=group[0].start if i else row.start)
        for i, group in enumerate(groups)
    ]


def _pack(rows: Sequence[Row], conv_width: int, device: torch.device | str) -> PackedBatch:
    lengths = [e.length for row in rows for e in row.elements if isinstance(e, LiveRun)]
    size = choose_chunk_size(lengths)
    width = conv_width - 1
    token_ids: list[int] = []
    positions: list[int] = []
    row_slices: list[slice] = []
    history: list[int] = []
    conv_pick: list[int] = []
    tails: list[list[int]] = []
    captured: list[list[int]] = []
    capture_order: list[tuple[int, int]] = []
    bank: list[int | SegmentPayload] = []
    logit_index: list[int] = []
    plan: list[list[Chunk | ReusedRun]] = []
    total = sum(lengths)
    num_banked = sum((row.past is not None) + sum(isinstance(e, ReusedRun) for e in row.elements) for row in rows)
    first_token = width * (1 + num_banked)

    def bank_sources(item: int | SegmentPayload) -> list[int]:
        bank.append(item)
        return list(range(width * len(bank), width * (len(bank) + 1)))

    for r, row in enumerate(rows):
        row_start = len(token_ids)
        recent = bank_sources(r) if row.past is not None else list(range(width))
        moves: list[Chunk | ReusedRun] = []
        for element in row.elements:
            if isinstance(element, ReusedRun):
                following = any(isinstance(m, Chunk) and m.begin for m in moves)
                assert not following, "a reused run would lose the transition that is being followed"
                recent = bank_sources(element.payload)
                moves.append(element)
                continue
            first = len(token_ids)
            token_ids.extend(element.token_ids)
            positions.extend(range(element.start, element.start + element.length))
            conv_pick.extend(range(len(history), len(history) + element.length))
            history.extend(recent)
            own = range(first_token + first, first_token + first + element.length)
            history.extend(own)
            recent = [*recent, *own][len(own) :]
            pieces = list(range(first, first + element.length, size))
            for i, at in enumerate(pieces):
                stop = min(at + size, first + element.length)
                begin, capture = element.begin_transition and i == 0, element.capture and i == len(pieces) - 1
                moves.append(Chunk(at, stop, begin, capture))
            if element.capture:
                captured.append(recent)
                capture_order.append((r, len(moves) - 1))
        row_slices.append(slice(row_start, len(token_ids)))
        tails.append(recent)
        plan.append(moves)
        logit_index.extend(range(len(token_ids) - row.logits_from, len(token_ids)))

    steps, grid = _steps(plan, size, total)
    # Captures come out of the chain in step order; the tails must follow the same order.
    order = sorted(range(len(capture_order)), key=lambda i: (capture_order[i][1], capture_order[i][0]))

    def sources(values: list[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device).reshape(len(values), width)

    grid_t = torch.tensor(grid, dtype=torch.long).reshape(-1, size)
    flat = grid_t.reshape(-1)
    ungrid = torch.empty(total, dtype=torch.long)
    used = flat < total
    ungrid[flat[used]] = used.nonzero().squeeze(-1)
    in_order = len(rows) == 1 and bool((flat[:total] == torch.arange(total)).all())
    return PackedBatch(
        rows=tuple(rows),
        token_ids=torch.tensor(token_ids, dtype=torch.long, device=device),
        positions=torch.tensor(positions, dtype=torch.long, device=device),
        row_slices=tuple(row_slices),
        history=torch.tensor(history, dtype=torch.long, device=device),
        conv_pick=torch.tensor(conv_pick, dtype=torch.long, device=device),
        tail_sources=sources(tails),
        capture_tails=sources([captured[i] for i in order]),
        tail_bank=tuple(bank),
        grid=grid_t.to(device),
        ungrid=ungrid.to(device),
        steps=tuple(steps),
        logit_index=torch.tensor(logit_index, dtype=torch.long, device=device),
        in_order=in_order,
        straight=len(rows) == 1
        and not any(
            isinstance(one, LiveRun) and isinstance(following, ReusedRun)
            for one, following in pairwise(rows[0].elements)
        ),
        any_transition=any(isinstance(e, LiveRun) and e.begin_transition for row in rows for e in row.elements),
    )


def _steps(plan: list[list[Chunk | ReusedRun]], size: int, pad: int) -> tuple[list[Step], list[list[int]]]:
    steps: list[Step] = []
    grid: list[list[int]] = []
    for s in range(max(map(len, plan))):
        step = Step()
        first = len(grid)
        for r, moves in enumerate(plan):
            if s >= len(moves):
                continue
            move = moves[s]
            if isinstance(move, ReusedRun):
                step.reused.append((r, move))
                continue
            grid.append(list(range(move.start, move.stop)) + [pad] * (size - (move.stop - move.start)))
            step.chunk_rows.append(r)
            if move.begin:
                step.begin.append(r)
            if move.capture:
                step.capture.append(r)
        step.chunks = slice(first, len(grid))
        steps.append(step)
    return steps, grid
