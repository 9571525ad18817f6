"""A directory that untouched transformers loads: ``python -m training.export CHECKPOINT DIR``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

TOKENIZER_DIR = Path(__file__).resolve().parent.parent / "hypic_agents" / "models_data" / "hypic-tiny"


def export(model: Any, tokenizer: Any, directory: Path) -> None:
    """Write config, float32 weights, generation settings, tokenizer and chat template to ``directory``."""
    from transformers import GenerationConfig

    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=end, pad_token_id=pad, max_new_tokens=64, bos_token_id=None
    )
    directory.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def main() -> None:
    """Export the weights of a training checkpoint."""
    from transformers import AutoTokenizer

    from training.checkpoint import build_model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tokenizer", type=Path, default=TOKENIZER_DIR)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    model = build_model(tokenizer)
    model.load_state_dict(torch.load(args.checkpoint, weights_only=True)["model"])
    export(model, tokenizer, args.directory)


if __name__ == "__main__":
    main()
