"""One run from its inputs to what it leaves: measure, train, save, measure again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypic_agents.errors import InvalidInput
from training.native.config import NativeConfig
from training.native.examples import Example, continued, encode_rows
from training.native.gap import engine_of, measure
from training.native.model import Trainable, load_trainable, save_adapters, save_model
from training.native.optimiser import Optimiser
from training.native.rows import digest, read_rows
from training.native.run import Run, settings_of
from training.native.trainer import Trainer

# Tokens that the model writes behind held-out prompts without an answer: what agreement and KL are taken over.
_HELD_OUT_LEN = 32


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run is made of besides its recipe.

    Attributes:
        model: A path, a hub name, ``tiny``, or ``random:FAMILY[:SIZE]``.
        data: Rows to train on.
        out: Directory of everything that the run writes.
        held_out: Rows to measure the gap on, or None.
        merge: Write adapters also as a whole checkpoint.
        resume: Go on from ``out/checkpoint.pt``.
        dtype: "auto", "float32" or "bfloat16".
        device: "auto" or a torch device.
    """

    model: str
    data: Path
    out: Path
    held_out: Path | None = None
    merge: bool = False
    resume: bool = False
    dtype: str = "auto"
    device: str = "auto"


def train(inputs: Inputs, config: NativeConfig, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """Run the stage.

    Returns:
        ``finished`` (False after SIGTERM: a checkpoint is left), ``steps``, ``tokens``, ``minutes``, the directories
        written (``model``, ``adapters``) and, with held-out rows, the measurements ``before`` and ``after``.

    Raises:
        InvalidInput: data or settings at fault, before the first step.
    """
    rows = {"data": read_rows(inputs.data)}
    names = {"model": inputs.model, "data": digest(inputs.data), "dtype": inputs.dtype}
    if inputs.held_out is not None:
        rows["held_out"] = read_rows(inputs.held_out)
        names["held_out"] = digest(inputs.held_out)
    checkpoint = inputs.out / "checkpoint.pt"
    if checkpoint.exists() and not inputs.resume:
        raise InvalidInput(f"{checkpoint} belongs to an earlier run: pass --resume, or another directory to --out")
    if inputs.merge and not config.lora:
        raise InvalidInput("there is nothing to merge without adapters: every weight is trained and written anyway")
    _make_directory(inputs.out)

    tell(f"loading {inputs.model}")
    trainable = load_trainable(inputs.model, config, dtype=inputs.dtype, device=inputs.device)
    run = Run(Optimiser(trainable.parameters(), config), settings_of(config, **names))
    lengths = {"data": config.continue_len, "held_out": _HELD_OUT_LEN}
    sets = {
        name: encode_rows(some, trainable.tokenizer, window=trainable.model.window, room=max(1, lengths[name]))
        for name, some in rows.items()
    }
    if inputs.resume:
        run.load(checkpoint)
    sets = {name: _written(trainable, run, config, name, some, lengths[name]) for name, some in sets.items()}
    trainer = Trainer(config, trainable, run, sets["data"], inputs.out, tell)
    if "held_out" in sets and run.before is None:
        tell(f"measuring the gap on {len(sets['held_out'])} rows")
        run.before = measure(trainable, sets["held_out"], config.base_policy)
        trainer.write({"event": "before", **run.before})
    with _stopping(trainer):
        finished = trainer.loop()
    result: dict[str, Any] = {"finished": finished, "steps": run.step, "tokens": run.tokens}
    result["minutes"] = round(run.elapsed_s / 60, 2)
    if not finished:
        return result
    if config.lora:
        save_adapters(trainable, inputs.out / "adapters")
        result["adapters"] = str(inputs.out / "adapters")
    if not config.lora or inputs.merge:
        save_model(trainable, inputs.out / "model")
        result["model"] = str(inputs.out / "model")
    if "held_out" in sets:
        after = measure(trainable, sets["held_out"], config.base_policy)
        trainer.write({"event": "after", **after})
        result |= {"before": run.before, "after": after}
    return result


def _written(
    trainable: Trainable, run: Run, config: NativeConfig, name: str, examples: list[Example], length: int
) -> list[Example]:
    """The examples; those without an answer continued as the weights before the first step do it."""
    if not length or all(example.answer_ids for example in examples):
        return examples
    if name not in run.written:
        done = continued(engine_of(trainable, config.base_policy), examples, length)
        run.written[name] = [list(example.answer_ids) for example in done]
    return [replace(e, answer_ids=tuple(ids)) for e, ids in zip(examples, run.written[name], strict=True)]


@contextmanager
def _stopping(trainer: Trainer) -> Iterator[None]:
    """SIGTERM ends the loop behind its current step."""
    before = signal.signal(signal.SIGTERM, lambda *_: setattr(trainer, "stop", True))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}") from error


def table(result: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Rows of the final table: points of right answers before and after."""
    shown = ("full", "reuse", "gap", "low", "high", "zero_state", "agreement", "kl")
    return [
        {"": when, **{name: round(result[when][name], 4) for name in shown}}
        for when in ("before", "after")
        if when in result
    ]
