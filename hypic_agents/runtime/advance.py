"""One pass and the tokens that come out of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from hypic_agents.errors import ModelError
from hypic_agents.runtime.limits import as_hypic
from hypic_agents.runtime.request import Request
from hypic_agents.runtime.sampling import sample

Compute = Callable[[Sequence[Request]], Sequence[Tensor]]
Record = Callable[[Sequence[Request], Sequence[int], Sequence[Tensor]], None]

LOG = logging.getLogger("hypic_agents.advance")


def advance(requests: Sequence[Request], compute: Compute, record: Record) -> None:
    """Next tokens for ``requests``. Whatever fails for several is tried for each alone: only the culprit fails.

    Args:
        requests: At least one.
        compute: Logits ``[vocab]`` of each.
        record: Told of a request's chosen token and its logits, before the request takes it. Its errors are logged.
    """
    try:
        logits = list(compute(requests))
    except Exception as error:  # noqa: BLE001  whatever failed must not take the other requests down
        if len(requests) > 1:
            for request in requests:
                advance([request], compute, record)
        else:
            requests[0].fail(as_hypic(error))
        return
    # Not a number spreads to the maximum, and a row without any finite value has none either.
    finite = torch.stack(logits).amax(-1).isfinite().tolist()
    sound = []
    for request, row, is_finite in zip(requests, logits, finite, strict=True):
        if is_finite:
            sound.append((request, row))
        else:
            request.fail(
                ModelError(
                    "the model's logits are not finite: its weights are damaged, or its numbers overflow; try "
                    "model_dtype='float32'"
                )
            )
    _choose(sound, record)


def _choose(rows: Sequence[tuple[Request, Tensor]], record: Record) -> None:
    """Sample a token for each request, and have it take it, with what must follow."""
    if not rows:
        return
    requests = [request for request, _ in rows]
    try:
        chosen = sample(
            torch.stack([row for _, row in rows]),
            [r.sampling for r in requests],
            [r.generator for r in requests],
            [r.grammar for r in requests],
        )
    except Exception as error:  # noqa: BLE001  as above; a grammar that fails does so before anything is drawn
        if len(rows) > 1:
            for one in rows:
                _choose([one], record)
        else:
            requests[0].fail(as_hypic(error))
        return
    for (request, row), token in zip(rows, chosen, strict=True):
        _guarded(request, partial(_take, row=row, token=token, record=record))
    # A pass of several tokens a row costs more than one of single tokens: run ahead where that spares enough passes.
    if sum(map(_num_settled, requests)) * 2 > len(requests):
        for request in requests:
            _guarded(request, Request.push_settled)


def _num_settled(request: Request) -> int:
    try:
        return request.num_settled
    except Exception as error:  # noqa: BLE001  as above
        request.fail(as_hypic(error))
        return 0


def _guarded(request: Request, act: Callable[[Request], None]) -> None:
    try:
        act(request)
    except Exception as error:  # noqa: BLE001  as above
        request.fail(as_hypic(error))


def _take(request: Request, row: Tensor, token: int, record: Record) -> None:
    token = request.settle(token)
    try:
        record([request], [token], [row])
    except Exception:
        LOG.exception("an answer cannot be recorded for its audit")
    request.push(token)
