"""Bytes of segments: measured on a small model, calculated for a large one."""

from __future__ import annotations

import json

import pytest

from hypic_agents.bench import memory
from hypic_agents.bench.memory import QWEN3_5_35B, LayerSet
from hypic_agents.errors import InvalidInput
from tests.bench.stub import random_engine


def quiet(stage: str, done: int, total: int) -> None:
    assert 0 < done <= total


def test_measured_bytes_are_those_of_the_shapes() -> None:
    with random_engine(policy="hypic:head_seam=8,tail_seam=2") as engine:
        result = memory.run(engine, progress=quiet, lengths=(64, 128))
        config = engine.model.config
    assert json.loads(json.dumps(result)) == result
    name = result["rows"][0]["model"]
    measured = [row for row in result["rows"] if row["model"] == name]
    linear = sum(kind == "linear_attention" for kind in config.layer_types)
    shape = LayerSet(
        linear=linear,
        heads=config.linear_num_value_heads,
        key_dim=config.linear_key_head_dim,
        value_dim=config.linear_value_head_dim,
        conv_bytes=measured[0]["conv_tails"] // linear,
        full=len(config.layer_types) - linear,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        kv_bytes=4,
    )
    assert [row["segment_tokens"] for row in measured] == [64] * 6 + [128] * 6
    for row in measured:
        parts = shape.parts(row["segment_tokens"] - 10, row["numbers"])  # 8 and 2 tokens of the seams are live
        assert row["total"] == sum(row[part] for part in parts)
        if row["numbers"] != "float32":  # heads whose transition vanished are left out
            assert row["transitions"] <= parts["transitions"]
            parts.pop("transitions")
        assert row | parts == row
        assert (row["transition_error"] == 0) == (row["numbers"] == "float32")
        assert row["transition_error"] < 0.2
    ratio = {(row["model"], row["numbers"]): row["states_vs_float32"] for row in result["rows"]}
    for model in {row["model"] for row in result["rows"]}:
        assert ratio[model, "float32"] == 1
        assert ratio[model, "bfloat16"] <= 0.5
        assert ratio[model, "int8"] < 0.35


def test_the_large_model_has_its_published_sizes() -> None:
    parts = QWEN3_5_35B.parts(1)
    assert parts["end_states"] == parts["transitions"] == 60 << 20
    assert parts["keys_values"] == 20 << 10


def test_lengths_that_make_no_segment() -> None:
    with random_engine() as engine, pytest.raises(InvalidInput, match="a segment of 16 tokens is live"):
        memory.run(engine, progress=quiet, lengths=(16,))
    with random_engine(store_bytes=1000) as engine, pytest.raises(InvalidInput, match="does not fit the store"):
        memory.run(engine, progress=quiet, lengths=(64,))
