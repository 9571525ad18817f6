"""What every running request took since its last pass, in one packed pass."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hypic_agents.runtime.batch import LiveRun, Row
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.request import Request


def decode(model: HybridModel, requests: Sequence[Request]) -> Tensor:
    """Logits ``[requests, vocab]`` behind each request's last token; their states advance to it.

    A request took one token since, or several where its grammar left no choice.
    """
    rows = []
    for request in requests:
        assert request.state is not None
        start = request.state.length
        taken = tuple(request.token_ids[start - len(request.prompt) :])
        rows.append(Row((LiveRun(start, taken),), past=request.state, start=start))
    result = model.forward(rows)
    for request, state in zip(requests, model.row_states(result), strict=True):
        request.state = state
    return result.logits
