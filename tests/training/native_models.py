"""A small checkpoint on disk whose answers depend on what stands before a segment, and rows to train it on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.models.random_init import random_model
from hypic_agents.runtime.models.registry import TINY
from training.native.examples import Example, encode_rows
from training.native.rows import read_rows

FAMILIES = ("qwen3_5", "qwen3_next", "qwen3_5_moe")
WORDS = "amber basin cedar delta ember fjord grove haven inlet jetty knoll lagoon meadow notch ocean prairie".split()


def write_checkpoint(directory: Path, family: str = "qwen3_5") -> Path:
    """A random model of three layers with its tokenizer, as a user's checkpoint lies on disk."""
    layers = ["linear_attention", "full_attention", "linear_attention"]
    changes: dict[str, Any] = {"layer_types": layers, "num_hidden_layers": 3, "hidden_size": 64}
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    changes["eos_token_id"] = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model = random_model(f"random:{family}:2m", **changes)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        # Wide enough that every layer matters beside the embedding of the last token.
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 and "conv1d" not in name:
                parameter.normal_(std=0.15)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def make_rows(count: int, *, answers: bool = True, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of a system text, two notes long enough to be reused, and a question."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        names = rng.sample(WORDS, 6)
        notes = [
            "Note on trips. " + " ".join(f"The {name} crew left on day {rng.randint(2, 99)}." for name in some)
            for some in (names[:3], names[3:])
        ]
        row = {
            "system": "Answer from the notes, in one word.",
            "documents": notes,
            "question": f"Who left after {names[0]}?",
        }
        rows.append(row | {"answer": names[-1]} if answers else row)
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def examples_of(path: Path, checkpoint: Path) -> list[Example]:
    return encode_rows(read_rows(path), ChatTokenizer.from_pretrained(str(checkpoint)), window=4096)
