"""The packed pass through the engine's own token mixing, ordinary or with documents isolated as at run time.

Isolated, a sequence takes up to three differentiable passes: the prefix (when builds are conditioned on it), every
document's head and interior from a zero start or behind the prefix, and the live tokens over the composed interiors.
The loss reaches the documents through their affine maps, keys and values, so the model learns to write documents that
compose.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hypic_agents.runtime.batch import LiveRun, ReusedRun, Row
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.models.payloads import built_payloads
from hypic_agents.runtime.policy import LEAD_MAX
from hypic_agents.runtime.state import SegmentPayload
from training.plain_forward import attention_mask
from training.sequences import ANSWER, DOCUMENT, OTHER, Output, TrainSequence

MIN_INTERIOR = 8


def forward(
    model: HybridModel,
    sequences: Sequence[TrainSequence],
    *,
    isolated: bool,
    head_seam: int,
    tail_seam: int,
    condition: bool,
    zero_state: bool = False,
) -> Output:
    """Logits and targets of every predicted token; see :class:`training.sequences.Forward`.

    ``zero_state`` starts every live span of an isolated pass from a zero recurrent state: the control that shows how
    much the answers need the composed state.
    """
    if not isolated:
        rows = [_ordinary_row(s) for s in sequences]
        result = model.forward(rows)
        return _collect(model, [(result.logits, [(s, 0, len(s.token_ids)) for s in sequences])])
    payloads, parts = _build(model, sequences, head_seam, tail_seam, condition)
    rows = []
    live: list[tuple[TrainSequence, int, int]] = []
    for s, made in zip(sequences, payloads, strict=True):
        elements: list[LiveRun | ReusedRun] = []
        at = 0
        for start, payload, is_prefix in made:
            if start > at:
                elements.append(LiveRun(at, s.token_ids[at:start]))
                live.append((s, at, start))
            compose = "zero" if zero_state else "last" if is_prefix else "transition"
            elements.append(ReusedRun(start, payload.length, payload, compose))
            at = start + payload.length
        elements.append(LiveRun(at, s.token_ids[at:]))
        live.append((s, at, len(s.token_ids)))
        tokens = sum(e.length for e in elements if isinstance(e, LiveRun))
        mask = None
        if s.blind:
            keep = torch.cat([torch.arange(e.start, e.start + e.length) for e in elements if isinstance(e, LiveRun)])
            mask = attention_mask([s], len(s.token_ids))[0, 0, keep]
        rows.append(Row(tuple(elements), logits_from=tokens, mask=mask))
    result = model.forward(rows)
    return _collect(model, [*parts, (result.logits, live)])


def _ordinary_row(s: TrainSequence) -> Row:
    mask = attention_mask([s], len(s.token_ids))[0, 0] if s.blind else None
    return Row((LiveRun(0, s.token_ids),), logits_from=len(s.token_ids), mask=mask)


Parts = list[tuple[Tensor, list[tuple[TrainSequence, int, int]]]]


def _build(
    model: HybridModel, sequences: Sequence[TrainSequence], head: int, tail: int, condition: bool
) -> tuple[list[list[tuple[int, SegmentPayload, bool]]], Parts]:
    """Payloads ``(position, payload, is prefix)`` of every sequence in order, and the logits of what was built."""
    parts: Parts = []
    prefixes: list[SegmentPayload | None] = [None] * len(sequences)
    made: list[list[tuple[int, SegmentPayload, bool]]] = [[] for _ in sequences]
    if condition:
        rows = [
            Row(
                (LiveRun(0, s.token_ids[: s.prefix_end]),), logits_from=s.prefix_end, keep=s.prefix_end, checkpoint=True
            )
            for s in sequences
        ]
        result = model.forward(rows)
        parts.append((result.logits, [(s, 0, s.prefix_end) for s in sequences]))
        prefixes = list(built_payloads(result.batch))
        for one, prefix in zip(made, prefixes, strict=True):
            assert prefix is not None
            one.append((0, prefix, True))
    rows = []
    built: list[tuple[int, int]] = []
    inside: list[tuple[TrainSequence, int, int]] = []
    for i, s in enumerate(sequences):
        prefix = prefixes[i]
        for number, (start, end) in enumerate(s.spans):
            first, last = start + head, end - tail
            if last - first < MIN_INTERIOR:
                continue
            at = 0 if prefix is None else prefix.length
            elements: list[LiveRun | ReusedRun] = [] if prefix is None else [ReusedRun(0, at, prefix, "last")]
            before = s.token_ids[start:first] if prefix is None else _lead(s, number) + s.token_ids[start:first]
            if before:
                elements.append(LiveRun(at, before))
            elements.append(LiveRun(at + len(before), s.token_ids[first:last], begin_transition=True))
            rows.append(Row(tuple(elements), logits_from=last - first, keep=last - first))
            built.append((i, first))
            inside.append((s, first, last))
    if rows:
        result = model.forward(rows)
        parts.append((result.logits, inside))
        for (i, first), payload in zip(built, built_payloads(result.batch), strict=True):
            made[i].append((first, payload, False))
    return made, parts


def _lead(s: TrainSequence, number: int) -> tuple[int, ...]:
    """The tokens before the block of a span that its conditioned build stands behind, as ``hypic`` has it."""
    block = 0 if number < s.num_tools else s.num_tools
    end = s.spans[block][0]
    return s.token_ids[max(s.prefix_end, s.spans[block - 1][1] if block else 0, end - LEAD_MAX) : end]


def _collect(model: HybridModel, parts: Parts) -> Output:
    """Targets and kinds of every predicted position; a sequence's last token predicts nothing."""
    logits, targets, kinds = [], [], []
    for values, ranges in parts:
        keep, at = [], 0
        for s, start, end in ranges:
            stop = min(end, len(s.token_ids) - 1)
            keep.append(torch.arange(at, at + stop - start))
            at += end - start
            document = torch.zeros(len(s.token_ids), dtype=torch.bool)
            for a, b in s.spans:
                document[a:b] = True
            for position in range(start + 1, stop + 1):
                targets.append(s.token_ids[position])
                kinds.append(ANSWER if s.answer_mask[position] else DOCUMENT if document[position] else OTHER)
        logits.append(values[torch.cat(keep).to(values.device)])
    device = model.device
    return Output(
        logits=torch.cat(logits).float(),
        targets=torch.tensor(targets, device=device),
        weights_kind=torch.tensor(kinds, dtype=torch.uint8, device=device),
    )
