"""Entries that are built ahead of any request, a pass at a time, so that requests go on in between."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager

import torch

from hypic_agents.errors import EngineClosed
from hypic_agents.runtime.plan import Plan
from hypic_agents.runtime.prefill import Prefill


def warming(
    prefill: Prefill,
    plans: Sequence[Plan],
    prompts: Sequence[Sequence[int]],
    lock: AbstractContextManager[object],
    is_closed: Callable[[], bool],
) -> Generator[None, None, int]:
    """Build what plans need and the store lacks; returns how many entries were built.

    Yields, without the lock, whenever there may be something to wait for. Closing it gives up what is still missing.

    Args:
        prefill: Of the engine.
        plans: What is to be warm.
        prompts: Their token ids.
        lock: The engine's.
        is_closed: Whether the engine was closed meanwhile.

    Raises:
        EngineClosed: it was.
        Exception: what kept an entry from being built.
    """
    behind = [(plan, ids) for plan, ids in zip(plans, prompts, strict=True) if plan.policy.prefix and plan.builds]
    with lock:
        ticket = prefill.cold.start([build for plan in plans if not plan.policy.prefix for build in plan.builds])
    try:
        while True:
            with lock:
                if is_closed():
                    raise EngineClosed("the engine is closed")
                if prefill.cold.have_come(ticket):
                    break
            yield
        count = len(ticket.cold)
    finally:
        with lock:
            prefill.cold.drop([ticket])
    for plan, ids in behind:
        with lock, torch.inference_mode():
            count += prefill.warm_behind_prefix(plan, ids)
        yield
    return count
