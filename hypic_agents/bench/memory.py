"""What segments take by their length: keys and values, end states S, transitions T, conv tails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.bench.timing import Progress
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.compact import Compaction, compact, transition_error
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.payload_codec import Numbers, SegmentCodec
from hypic_agents.runtime.state import AttentionPayload, SegmentPayload

LENGTHS = (256, 1_024, 4_096)
COMPACTIONS = (
    Compaction(),
    Compaction("bfloat16"),
    Compaction("int8"),
    Compaction("int8", drop_below=0.1),
    Compaction("int8", low_rank_within=0.03),
    Compaction("int8", low_rank_within=0.1),
)
_LARGE = "Qwen3.5-35B-A3B (calculated)"
# By the first word of a tensor's name.
_PARTS = {
    "keys": "keys_values",
    "values": "keys_values",
    "end": "end_states",
    "transition": "transitions",
    "heads": "transitions",
    "low": "transitions",
    "conv": "conv_tails",
}


@dataclass(frozen=True, slots=True)
class LayerSet:
    """The sizes of a model's mixers that decide what a segment takes.

    Attributes:
        linear, heads, key_dim, value_dim: Linear layers, and the shape ``[heads, key_dim, value_dim]`` of their state.
        conv_bytes: Bytes of one layer's conv tail.
        full, kv_heads, head_dim: Full-attention layers, and what each keeps of a token, twice.
        kv_bytes: Bytes of a number of a key or value.
    """

    linear: int
    heads: int
    key_dim: int
    value_dim: int
    conv_bytes: int
    full: int
    kv_heads: int
    head_dim: int
    kv_bytes: int = 2

    def parts(self, tokens: int, numbers: Numbers = "float32") -> dict[str, int]:
        """Bytes of a segment of ``tokens`` reused tokens, by part, with states and transitions in ``numbers``."""
        rows = self.linear * self.heads * self.key_dim
        item, of_row = {"float32": (4, 0), "bfloat16": (2, 0), "int8": (1, 1)}[numbers]
        return {
            "keys_values": 2 * self.full * self.kv_heads * self.head_dim * self.kv_bytes * tokens,
            "end_states": rows * (self.value_dim * item + of_row),
            "transitions": rows * (self.key_dim * item + of_row),
            "conv_tails": self.linear * self.conv_bytes,
        }


# Published sizes of Qwen3.5-35B-A3B: 40 layers, one in four with full attention; bfloat16 but for the states.
QWEN3_5_35B = LayerSet(
    linear=30, heads=32, key_dim=128, value_dim=128, conv_bytes=3 * 8_192 * 2, full=10, kv_heads=2, head_dim=256
)


def run(engine: Engine, *, progress: Progress, lengths: Sequence[int] = LENGTHS, seed: int = 0) -> dict[str, Any]:
    """Build one segment of each length and count its bytes; the same, calculated, for a model of 35 B parameters.

    Rows in float32 without dropping count the payload as it is in memory, the others the tensors of its file.
    ``transition_error`` is the largest Frobenius norm of what a head's transition loses.

    The calculated rows drop and factor no transition: which ones vanish or have low rank depends on the weights.

    Args:
        engine: Builds under its default policy; must not round payloads itself.
        progress: Told of every segment.
        lengths: Of the segments, seams included, in tokens.
        seed: Of their tokens.

    Raises:
        InvalidInput: a length that the policy computes live or the store does not hold.
    """
    rows = []
    for count, length in enumerate(lengths, 1):
        payload = _build(engine, length, seed)
        for compaction in COMPACTIONS:
            parts = memory_parts(payload) if compaction == Compaction() else file_parts(payload, compaction)
            row = _row(engine.name or "model", length, payload.length, compaction, parts)
            rows.append(row | {"transition_error": transition_error(payload, compact(payload, compaction))})
        progress("building segments", count, len(lengths))
    reused = {row["segment_tokens"]: row["reused_tokens"] for row in rows}
    rows += [
        _row(_LARGE, length, reused[length], compaction, QWEN3_5_35B.parts(reused[length], compaction.numbers))
        | {"transition_error": None}
        for length in lengths
        for compaction in COMPACTIONS
        if not (compaction.drop_below or compaction.low_rank_within)
    ]
    for row in rows:
        plain = next(r for r in rows if (r["model"], r["segment_tokens"]) == (row["model"], row["segment_tokens"]))
        row["states_vs_float32"] = (row["end_states"] + row["transitions"]) / (
            plain["end_states"] + plain["transitions"]
        )
    return {"rows": rows, "policy": engine.config.default_policy.name, "dtype": str(engine.model.dtype), "seed": seed}


def memory_parts(payload: SegmentPayload) -> dict[str, int]:
    """Bytes of a payload by part."""
    parts = {"keys_values": 0, "end_states": 0, "transitions": 0, "conv_tails": 0}
    for layer in payload.layers:
        if isinstance(layer, AttentionPayload):
            parts["keys_values"] += layer.keys.nbytes + layer.values.nbytes
        else:
            parts["end_states"] += layer.end_state.nbytes
            parts["conv_tails"] += layer.conv_tail.nbytes
            parts["transitions"] += layer.transition.nbytes if layer.transition is not None else 0
    assert sum(parts.values()) == payload.nbytes
    return parts


def file_parts(payload: SegmentPayload, compaction: Compaction) -> dict[str, int]:
    """Bytes of a payload's tensors in its file, by part."""
    _, tensors = SegmentCodec(numbers=compaction.numbers).encode(compact(payload, compaction))
    parts = {"keys_values": 0, "end_states": 0, "transitions": 0, "conv_tails": 0}
    for name, tensor in tensors.items():
        part = name.partition(".")[2].partition("_")[0]
        parts[_PARTS[part]] += len(tensor.data)
    return parts


def _build(engine: Engine, length: int, seed: int) -> SegmentPayload:
    """A segment's payload."""
    prompts = Prompts(Shape(1, length, question_len=8), engine.model.vocab_size, seed)
    prompt = prompts.one_each()[0]
    builds = [build for build in engine.plan(prompt).builds if not build.is_prefix]
    if not builds:
        raise InvalidInput(f"a segment of {length} tokens is live under this policy; use longer ones")
    engine.warm([prompt])
    entry = engine.store.acquire(builds[0].key(engine.fingerprint), builds[0].token_ids)
    if entry is None:
        raise InvalidInput(f"a segment of {length} tokens does not fit the store; raise store_bytes")
    engine.store.release(entry)
    assert isinstance(entry.payload, SegmentPayload)
    return entry.payload


def _row(model: str, length: int, reused: int, compaction: Compaction, parts: dict[str, int]) -> dict[str, Any]:
    total = sum(parts.values())
    return {
        "model": model,
        "segment_tokens": length,
        "reused_tokens": reused,
        "numbers": compaction.numbers,
        "drop_below": compaction.drop_below,
        "low_rank_within": compaction.low_rank_within,
        **parts,
        "total": total,
        "states_share": (parts["end_states"] + parts["transitions"]) / total,
    }
