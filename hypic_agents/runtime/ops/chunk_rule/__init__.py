"""Chunked form of the linear recurrences, for every family: see :mod:`.naive`."""

from hypic_agents.runtime.ops.chunk_rule.naive import (
    ChunkFactors,
    advance,
    advance_transition,
    chunk_factors,
    chunk_outputs,
    chunk_transitions,
)

__all__ = ["ChunkFactors", "advance", "advance_transition", "chunk_factors", "chunk_outputs", "chunk_transitions"]
