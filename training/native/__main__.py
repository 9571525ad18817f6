"""Command line of segment-native training; see docs/native_training.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from hypic_agents.cli.output import Output, exit_code, show_rows
from hypic_agents.errors import HypicError, InvalidInput
from training.native.config import NativeConfig
from training.native.sample import write_sample

_DEFAULTS = NativeConfig(steps=1)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m training.native", description=__doc__)
    io = made.add_argument_group("what to train, on what")
    io.add_argument("--model", help="a path, a hub name, 'tiny', or 'random:FAMILY[:SIZE]'")
    io.add_argument("--data", type=Path, required=True, help="rows to train on, JSONL")
    io.add_argument("--out", type=Path, help="directory of checkpoint, log, adapters and model")
    io.add_argument("--eval", type=Path, dest="held_out", help="held-out rows: measure the gap before and after")
    io.add_argument("--resume", action="store_true", help="go on from OUT/checkpoint.pt")
    io.add_argument(
        "--write-sample", type=int, metavar="N", help="write N rows of the built-in world to --data and stop"
    )
    io.add_argument("--sample-split", choices=("train", "heldout"), default="train", help="its made-up names")
    io.add_argument("--sample-no-answers", action="store_true", help="leave its answers out")

    recipe = made.add_argument_group("recipe")
    length = recipe.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help="updates of the whole run")
    length.add_argument("--minutes", type=float, help="wall clock of the whole run")
    recipe.add_argument("--lr", type=float, help="peak learning rate; default 2e-4 with adapters, else 2e-5")
    recipe.add_argument("--lora", type=int, default=0, metavar="RANK", help="train adapters of this rank (needs peft)")
    recipe.add_argument("--merge", action="store_true", help="write the adapters also merged, as a whole checkpoint")
    _add(recipe, "isolate_share", float, "share of steps that read segments as the runtime builds them")
    _add(recipe, "policy", str, "reuse policy of those steps and of the evaluation")
    recipe.add_argument("--head-seams", type=int, nargs="+", default=list(_DEFAULTS.head_seams), metavar="WIDTH",
                        help="head seams to draw from; default %(default)s")  # fmt: skip
    _add(recipe, "condition_share", float, "share of isolated steps that build segments behind the system text")
    _add(recipe, "document_loss", float, "weight of the next-token loss on the segments' text")
    _add(recipe, "distill", float, "weight of KL(full recompute || isolated); needs no answers")
    recipe.add_argument(
        "--teacher", choices=("self", "base"), default="self", help="whose full recompute; default self"
    )
    recipe.add_argument("--continue", type=int, default=0, dest="continue_len", metavar="N",
                        help="distil N tokens that the model writes behind prompts without an answer")  # fmt: skip
    _add(recipe, "tokens_per_step", int, "tokens of one update")
    _add(recipe, "warmup_steps", int, "steps until the peak learning rate")
    recipe.add_argument("--decay", choices=("cosine", "linear"), default="cosine", help="default cosine")
    _add(recipe, "weight_decay", float, "on matrices")
    _add(recipe, "clip", float, "gradient norm")
    _add(recipe, "seed", int, "fixes order, seams and adapters")

    machine = made.add_argument_group("machine")
    _add(machine, "tokens_per_pass", int, "tokens computed together; lower it where memory is short")
    machine.add_argument("--recompute-layers", action="store_true", help="less memory for one more forward pass")
    machine.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto",
                         help="default float32 on a CPU, bfloat16 on a GPU")  # fmt: skip
    machine.add_argument("--device", default="auto", help="a torch device; default a GPU where there is one")
    machine.add_argument("--threads", type=int, help="CPU threads")
    _add(machine, "log_every_steps", int, "steps a line of the log")
    _add(machine, "checkpoint_every_s", float, "seconds between checkpoints")
    machine.add_argument("--json", action="store_true", help="print one JSON object on stdout; progress goes to stderr")
    return made


def _add(group: Any, name: str, kind: type, text: str) -> None:
    default = getattr(_DEFAULTS, name)
    group.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=f"{text}; default %(default)s")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code: 2 where the input is at fault."""
    args = parser().parse_args(arguments)
    out = Output(as_json=args.json, stdout=sys.stdout, stderr=sys.stderr)
    try:
        if args.write_sample is not None:
            write_sample(
                args.data,
                args.write_sample,
                seed=args.seed,
                split=args.sample_split,
                answers=not args.sample_no_answers,
            )
            result: dict[str, Any] = {"rows": args.write_sample, "data": str(args.data)}
            out.result(result, lambda console: console.print(f"{args.write_sample} rows in {args.data}", markup=False))
            return 0
        result = _train(args, out)
        out.result(result, lambda console: _show(console, result))
    except HypicError as error:
        out.error(error)
        return exit_code(error)
    return 0


def _train(args: argparse.Namespace, out: Output) -> dict[str, Any]:
    for name in ("model", "out"):
        if getattr(args, name) is None:
            raise InvalidInput(f"--{name} is missing")
    values = {name: getattr(args, name) for name in NativeConfig.__dataclass_fields__ if hasattr(args, name)}
    if args.steps is None and args.minutes is None:
        raise InvalidInput("give the run's length: --steps or --minutes")
    values["lr"] = args.lr if args.lr is not None else 2e-4 if args.lora else 2e-5
    values["head_seams"] = tuple(args.head_seams)
    config = NativeConfig(**values)

    import torch

    from training.native.stage import Inputs, train

    if args.threads:
        torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    names = Inputs.__dataclass_fields__
    return train(Inputs(**{name: getattr(args, name) for name in names}), config, _teller(out))


def _teller(out: Output) -> Any:
    return lambda text: out.log.print(text, markup=False, soft_wrap=True)


def _show(console: Console, result: dict[str, Any]) -> None:
    from training.native.stage import table

    show_rows(console, "Right answers before and after, in points", {**result, "rows": table(result)})
    if not result["finished"]:
        console.print("stopped; go on with --resume")


if __name__ == "__main__":
    sys.exit(main())
