"""Passes of an audit, in slices: between two slices the engine may serve a request first.

Each function is a generator that yields between slices and returns its result, for ``yield from``.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from hypic_agents.runtime.assemble import assembly_row
from hypic_agents.runtime.batch import LiveRun, ReusedRun, Row
from hypic_agents.runtime.build import Builder
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.memory import MemoryStore
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.plan import Build, Plan
from hypic_agents.runtime.state import AttentionPayload, RowState, SegmentPayload

T = TypeVar("T")
Slices = Generator[None, None, T]
Entries = dict[SegmentKey, SegmentEntry]

# Live tokens of one slice: how long a request may have to wait for an audit.
SLICE = 1024


def score(
    model: HybridModel,
    plan: Plan,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    entries: Mapping[SegmentKey, SegmentEntry],
    fingerprint: str,
) -> Slices[Tensor]:
    """Logits ``[answer tokens, vocab]`` float32 of a given answer; reused spans come from ``entries``."""
    row = assembly_row(plan, prompt_ids, entries, fingerprint, answer_ids=answer_ids)
    past: RowState | None = None
    logits = torch.empty(0)
    for piece in cut_row(row, SLICE):
        if past is not None:
            yield
        result = model.forward([replace(piece, past=past)])
        past = model.row_states(result)[0]
        logits = result.logits.float()
    return logits


def cut_row(row: Row, most: int) -> list[Row]:
    """Rows that continue each other and together are ``row``, of at most ``most`` live tokens each.

    The tokens whose logits are wanted are the exception: they stay together, in the last row, however many they are.
    """
    pieces: list[list[LiveRun | ReusedRun]] = [[]]
    room = most
    for element in row.elements:
        if isinstance(element, ReusedRun):
            pieces[-1].append(element)
            continue
        wanted = row.logits_from if element is row.elements[-1] else 0
        cuttable = element.length - wanted
        at = 0
        while at < cuttable:
            if room == 0:
                pieces.append([])
                room = most
            stop = min(at + room, cuttable)
            pieces[-1].append(LiveRun(element.start + at, element.token_ids[at:stop]))
            room -= stop - at
            at = stop
        if wanted:
            if wanted > room and room < most:
                pieces.append([])
            pieces[-1].append(LiveRun(element.start + at, element.token_ids[at:]))
    rows = [Row(tuple(piece), start=piece[0].start, logits_from=0) for piece in pieces]
    return [*rows[:-1], replace(rows[-1], logits_from=row.logits_from)]


def rebuild(model: HybridModel, builds: Sequence[Build], fingerprint: str) -> Slices[Entries]:
    """Every entry of a plan made anew, one a slice, apart from the engine's store."""
    scratch = Builder(model, MemoryStore(_UNBOUNDED), fingerprint, SLICE)
    entries: Entries = {}
    for build in sorted(builds, key=lambda one: not one.is_prefix):
        if build.key(fingerprint) in entries:
            continue
        # A conditioned build wants its prefix among the entries held by the same call.
        prefixes = [one for one in builds if one.is_prefix and one.token_ids == build.prefix_ids]
        held, _ = scratch.acquire([*prefixes, build])
        scratch.release(held)
        entries |= held
        yield
    return entries


# One prompt's entries live as long as its audit, whatever their size: the request held as much when it was served.
_UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a stored payload is from its rebuild: the largest relative error of any tensor, and where that is."""

    error: float
    where: str


def payload_difference(stored: SegmentPayload, rebuilt: SegmentPayload) -> Difference:
    """Compare two payloads of one build. The error is inf where they do not even match in form, and for NaN.

    Norms are taken per tensor, over a floor that keeps tensors of nearly nothing from counting their rounding.
    """
    if (stored.length, stored.is_checkpoint) != (rebuilt.length, rebuilt.is_checkpoint):
        return Difference(math.inf, "length")
    worst = Difference(0.0, "nowhere")
    for i, (a, b) in enumerate(zip(stored.layers, rebuilt.layers, strict=True)):
        ours, fresh = list(a.tensors()), list(b.tensors())
        if type(a) is not type(b) or [x.shape for x in ours] != [y.shape for y in fresh]:
            return Difference(math.inf, f"layer {i}")
        if isinstance(a, AttentionPayload) and isinstance(b, AttentionPayload) and a.position != b.position:
            return Difference(math.inf, f"layer {i}")
        error = max(map(_relative_error, ours, fresh))
        if error > worst.error:
            worst = Difference(error, f"layer {i}")
    return worst


def _relative_error(stored: Tensor, rebuilt: Tensor) -> float:
    expected = rebuilt.float()
    norm = max(expected.norm().item(), _FLOOR * math.sqrt(expected.numel()))
    error = (stored.to(expected.device).float() - expected).norm().item() / norm
    return math.inf if math.isnan(error) else error


# Root mean square below which a tensor counts as nothing.
_FLOOR = 1e-3
