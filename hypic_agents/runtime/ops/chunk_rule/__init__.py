"""Chunked form of the linear recurrences, for every family: see :mod:`.naive`."""

from hypic_agents.runtime.ops.chunk_rule.naive import ChunkFactors, advance, chunk_factors, chunk_outputs

__all__ = ["ChunkFactors", "advance", "chunk_factors", "chunk_outputs"]
