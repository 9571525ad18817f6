"""The two differentiable passes: a whole prompt at once, and segments built alone, then composed, as requests are.

The second one runs the plan that the engine would run (:func:`hypic_agents.runtime.plan.make_plan`), so the loss meets
exactly the interiors, seams and positions of serving. Gradients reach a segment's tokens through its transition, end
state, conv tail, keys and values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hypic_agents.runtime.assemble import assembly_row
from hypic_agents.runtime.batch import LiveRun, ReusedRun, Row
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.models.payloads import built_payloads
from hypic_agents.runtime.plan import Build, Plan
from hypic_agents.runtime.state import SegmentPayload
from training.native.examples import Example
from training.native.targets import Target, Wanted, build_targets, row_targets

_KEYS = ""  # entries live for one pass: their keys need no fingerprint


@dataclass(frozen=True, slots=True)
class Predictions:
    """Logits of the chosen targets: those of the examples in order of position, then those inside builds.

    Attributes:
        logits: ``[N, vocab]`` float32.
        tokens: ``[N]`` the token that follows; -1 where only the distribution counts.
        kinds: ``[N]`` kind of each target.
        weights: ``[N]`` float32: how many examples share a prediction inside a build; else 1.
        owners: Index of the example of each target, -1 inside builds.
    """

    logits: Tensor
    tokens: Tensor
    kinds: Tensor
    weights: Tensor
    owners: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Reading:
    """A row, the targets among its predictions, how many examples share them, and the example they belong to."""

    row: Row
    targets: list[Target]
    share: int = 1
    owner: int = -1


def ordinary_pass(
    model: HybridModel, examples: Sequence[Example], plans: Sequence[Plan], wanted: Wanted
) -> Predictions:
    """Full recompute. ``plans`` only choose the targets."""
    readings = []
    for index, (example, plan) in enumerate(zip(examples, plans, strict=True)):
        row = Row((LiveRun(0, (*example.prompt.token_ids, *example.answer_ids[:-1])),))
        targets = row_targets(example, plan, wanted, isolated=False)
        readings.append(_Reading(_reaching(row, targets), targets, owner=index))
    return _predict([_run(model, readings)[0]])


def isolated_pass(
    model: HybridModel, examples: Sequence[Example], plans: Sequence[Plan], wanted: Wanted
) -> Predictions:
    """Every segment built from its own tokens, then one pass over the live tokens that composes them."""
    shared = Counter(build.key(_KEYS) for plan in plans for build in plan.builds)
    builds = {build.key(_KEYS): build for plan in plans for build in plan.builds}
    entries: dict[SegmentKey, SegmentEntry] = {}
    prefixes: dict[tuple[int, ...], SegmentPayload] = {}
    parts: list[_Part] = []
    for are_prefixes in (True, False):  # conditioned segments are built behind their prefix
        group = {key: build for key, build in builds.items() if build.is_prefix == are_prefixes}
        if not group:
            continue
        readings = []
        for key, build in group.items():
            targets = build_targets(build) if wanted.document else []
            readings.append(_Reading(_build_row(build, prefixes, read=bool(targets)), targets, share=shared[key]))
        part, payloads = _run(model, readings)
        parts.append(part)
        for (key, build), payload in zip(group.items(), payloads, strict=True):
            entries[key] = SegmentEntry(key, build.token_ids, payload)
            if build.is_prefix:
                prefixes[build.token_ids] = payload
    readings = []
    for index, (example, plan) in enumerate(zip(examples, plans, strict=True)):
        row = assembly_row(plan, example.prompt.token_ids, entries, _KEYS, answer_ids=example.answer_ids)
        targets = row_targets(example, plan, wanted, isolated=True)
        readings.append(_Reading(_reaching(row, targets), targets, owner=index))
    return _predict([_run(model, readings)[0], *parts])


def _build_row(build: Build, prefixes: Mapping[tuple[int, ...], SegmentPayload], *, read: bool) -> Row:
    """The row that makes an entry, as the engine's builder makes it; ``read`` asks for logits of its interior."""
    if build.is_prefix:
        run = LiveRun(0, build.token_ids)
        return Row((run,), logits_from=0, keep=len(build.token_ids), checkpoint=True)
    elements: list[LiveRun | ReusedRun] = []
    at = len(build.prefix_ids)
    if at:
        elements.append(ReusedRun(0, at, prefixes[build.prefix_ids], "last"))
    if build.map_from:
        elements.append(LiveRun(at, build.token_ids[: build.map_from]))
    elements.append(LiveRun(at + build.map_from, build.token_ids[build.map_from :], begin_transition=True))
    return Row(tuple(elements), logits_from=build.num_reused if read else 0, keep=build.num_reused)


def _reaching(row: Row, targets: Sequence[Target]) -> Row:
    """The row with logits from its first target on."""
    first = targets[0].position if targets else row.end
    return replace(row, logits_from=sum(position >= first for position in _live_positions(row)))


def _live_positions(row: Row) -> list[int]:
    return [p for e in row.elements if isinstance(e, LiveRun) for p in range(e.start, e.start + e.length)]


_Part = tuple[Sequence[_Reading], Tensor]


def _run(model: HybridModel, readings: Sequence[_Reading]) -> tuple[_Part, list[SegmentPayload]]:
    result = model.forward([reading.row for reading in readings])
    keeps = all(reading.row.keep for reading in readings)
    return (readings, result.logits), built_payloads(result.batch) if keeps else []


def _predict(parts: Sequence[_Part]) -> Predictions:
    logits = []
    targets: list[Target] = []
    weights: list[float] = []
    owners: list[int] = []
    for readings, values in parts:
        chosen: list[int] = []
        at = 0
        for reading in readings:
            row = reading.row
            # Inside a build, positions count from the interior, whose logits are the row's last.
            live = range(row.keep) if row.keep else _live_positions(row)
            first = at + row.logits_from - len(live)
            place = {position: first + i for i, position in enumerate(live)}
            chosen += [place[target.position] for target in reading.targets]
            targets += reading.targets
            weights += [float(reading.share)] * len(reading.targets)
            owners += [reading.owner] * len(reading.targets)
            at += row.logits_from
        logits.append(values.index_select(0, torch.tensor(chosen, dtype=torch.long, device=values.device)))
    device = logits[0].device
    return Predictions(
        logits=torch.cat(logits).float(),
        tokens=torch.tensor([target.token for target in targets], dtype=torch.long, device=device),
        kinds=torch.tensor([target.kind for target in targets], dtype=torch.long, device=device),
        weights=torch.tensor(weights, dtype=torch.float32, device=device),
        owners=tuple(owners),
    )
