"""What work and transport cost in the simulation: the measured costs of one machine, and a network that is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds and bytes of the simulated work.

    Attributes:
        fixed_s, token_s, pair_s: A segment of n tokens is built in ``fixed_s + token_s n + pair_s n^2``.
        live_s: A live token of the pass that answers a request.
        compose_s: A segment that this pass composes.
        dispatch_s: From handing out a build until the worker begins, where the worker is not the request's own.
        fixed_bytes, token_bytes: What a segment takes: states and transitions, and keys and values by its tokens.
        link_bytes_s: What a worker takes in of others' payloads a second, checksum and copy included.
    """

    token_s: float
    pair_s: float
    fixed_s: float = 0.0
    live_s: float = 0.0
    compose_s: float = 0.0
    dispatch_s: float = 0.0
    fixed_bytes: float = 0.0
    token_bytes: float = 0.0
    link_bytes_s: float = float("inf")

    def build_s(self, tokens: int) -> float:
        """Seconds to build a segment."""
        return self.fixed_s + self.token_s * tokens + self.pair_s * tokens * tokens

    def move_s(self, tokens: int) -> float:
        """Seconds to take in a segment that another worker built."""
        return (self.fixed_bytes + self.token_bytes * tokens) / self.link_bytes_s

    def answer_s(self, live: int, segments: int) -> float:
        """Seconds of the pass over a prompt's live tokens, up to the first token of the answer."""
        return self.live_s * live + self.compose_s * segments
