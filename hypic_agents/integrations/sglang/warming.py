"""Sending missing parts ahead to a HYPIC build: in parallel, the longest first, each only once at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from hypic_agents.errors import HypicError
from hypic_agents.integrations.sglang.known import GLUE
from hypic_agents.integrations.sglang.parts import Part
from hypic_agents.integrations.sglang.payload import GENERATE, warm_payload
from hypic_agents.integrations.sglang.pool import Server

MAX_PARALLEL: Final = 16


async def warm_parts(server: Server, parts: Sequence[Part], separator: str) -> tuple[bytes, ...]:
    """Make a server hold these parts; keys of those that it held not yet.

    A part that another request is sending is waited for. One that cannot be sent is left to the prompt itself: the
    server computes what it lacks.
    """
    missing = {part.key: part for part in parts if part.key not in server.sent}
    slots = asyncio.Semaphore(MAX_PARALLEL)
    longest_first = sorted(missing.values(), key=lambda part: -part.num_tokens)
    done = await asyncio.gather(*(_once(server, part, separator, slots) for part in longest_first))
    return tuple(part.key for part, new in zip(longest_first, done, strict=True) if new)


async def _once(server: Server, part: Part, separator: str, slots: asyncio.Semaphore) -> bool:
    """Whether this call sent it."""
    running = server.warming.get(part.key)
    if running is not None:
        # Whoever sends it may be cancelled; then the prompt itself brings the part.
        await asyncio.wait([running])
        return False
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    server.warming[part.key] = future
    try:
        async with slots:
            body = warm_payload(part.text, separator, rid=f"hypic-warm-{uuid4().hex}")
            await server.transport.steady("POST", GENERATE, body)
    except HypicError:
        return False
    else:
        server.sent.add(part.key, part.segment or GLUE)
        return True
    finally:
        del server.warming[part.key]
        future.set_result(True)
