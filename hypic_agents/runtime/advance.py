"""One pass and the tokens that come out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hypic_agents.runtime.limits import as_hypic
from hypic_agents.runtime.request import Request
from hypic_agents.runtime.sampling import sample

Compute = Callable[[Sequence[Request]], Sequence[Tensor]]
Record = Callable[[Sequence[Request], Sequence[int], Sequence[Tensor]], None]


def advance(requests: Sequence[Request], compute: Compute, record: Record) -> None:
    """Next tokens for ``requests``. If the pass fails, each is tried alone, so that only the culprit fails.

    Args:
        requests: At least one.
        compute: Logits ``[vocab]`` of each.
        record: Told of the chosen tokens and their logits, before the requests take them.
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
    chosen = sample(
        torch.stack(logits),
        [r.sampling for r in requests],
        [r.generator for r in requests],
        [r.grammar for r in requests],
    )
    tokens = [request.settle(token) for request, token in zip(requests, chosen, strict=True)]
    record(requests, tokens, logits)
    for request, token in zip(requests, tokens, strict=True):
        request.push(token)
