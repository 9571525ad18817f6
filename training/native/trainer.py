"""The loop: a step is isolated or ordinary, takes some examples in a few passes, and makes one update."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.plan import Plan, make_plan
from training.native.config import NativeConfig
from training.native.examples import Example
from training.native.losses import Tally, distilled, losses_of
from training.native.model import Trainable
from training.native.passes import isolated_pass, ordinary_pass
from training.native.run import Run
from training.native.targets import Wanted, count_targets, in_passes, reuses

MODES = ("ordinary", "isolated")


class Trainer:
    """One run's loop, clock and log."""

    def __init__(
        self,
        config: NativeConfig,
        trainable: Trainable,
        run: Run,
        examples: Sequence[Example],
        out: Path,
        tell: Callable[[str], None] = print,
    ) -> None:
        self.config, self.trainable, self.run, self.examples = config, trainable, run, examples
        self.out, self._tell = out, tell
        self.stop = False
        self._tallies = {mode: Tally() for mode in MODES}
        self._lr_share = 0.0
        check_examples(config, examples)

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.pt"

    def loop(self) -> bool:
        """Train to the run's end; False where it was asked to stop before. Either way a checkpoint is left."""
        run, config = self.run, self.config
        began = time.monotonic() - run.elapsed_s
        saved = run.elapsed_s
        since = (run.elapsed_s, run.tokens)
        while (progress := self.progress()) < 1.0 and not self.stop:
            self.step(progress)
            run.elapsed_s = time.monotonic() - began
            if run.step % config.log_every_steps == 0 or self.progress() >= 1.0:
                self._log_steps(*since)
                since = (run.elapsed_s, run.tokens)
            if run.elapsed_s - saved >= config.checkpoint_every_s:
                run.save(self.checkpoint)
                saved = run.elapsed_s
        run.save(self.checkpoint)
        return self.progress() >= 1.0

    def progress(self) -> float:
        """Share of the run that is done."""
        if self.config.steps is not None:
            return self.run.step / self.config.steps
        assert self.config.minutes is not None
        return self.run.elapsed_s / (60 * self.config.minutes)

    def step(self, progress: float) -> None:
        """One update."""
        config, run = self.config, self.run
        isolated = config.is_isolated(run.step)
        rng = random.Random(f"{config.seed} {run.step}")
        policy = config.policy_at(rng.choice(config.head_seams), condition=rng.random() < config.condition_share)
        batch = self._take()
        plans = [make_plan(example.prompt, policy) for example in batch]
        distils = config.distill > 0 and (isolated or config.teacher == "base")
        wanted = Wanted(document=config.document_loss > 0, distilled=distils)
        counts = count_targets(batch, plans, wanted, isolated=isolated)
        forward = isolated_pass if isolated else ordinary_pass
        trained = False
        for group in in_passes(batch, config.tokens_per_pass):
            some, some_plans = [batch[i] for i in group], [plans[i] for i in group]
            if not count_targets(some, some_plans, wanted, isolated=isolated).total():
                continue  # without answers, an ordinary pass may have nothing to learn from
            teacher = self._teacher(some, some_plans) if distils else None
            made = forward(self.trainable.model, some, some_plans, wanted)
            loss, tally = losses_of(made, teacher, counts, config)
            loss.backward()
            self._tallies[MODES[isolated]].add(tally)
            trained = True
        self._lr_share = config.lr_share(run.step, progress)
        if trained and not self.run.optimiser.step(self._lr_share):
            self.write({"event": "skipped", "step": run.step, "why": "a gradient is not finite"})
        run.step += 1
        run.tokens += sum(example.num_tokens for example in batch)

    def _teacher(self, examples: Sequence[Example], plans: Sequence[Plan]) -> Tensor:
        """Full recompute's logits at the distilled targets. Before the student's pass: adapters may be off for it."""
        with self.trainable.teacher(base=self.config.teacher == "base") as model:
            made = ordinary_pass(model, examples, plans, Wanted(document=False, distilled=True))
            return made.logits[distilled(made)]

    def _take(self) -> list[Example]:
        """The next examples, about ``tokens_per_step`` tokens; every epoch has an order of its own."""
        batch: list[Example] = []
        total = 0
        while not batch or total < self.config.tokens_per_step:
            epoch, at = divmod(self.run.consumed, len(self.examples))
            order = list(range(len(self.examples)))
            random.Random(f"{self.config.seed} epoch {epoch}").shuffle(order)
            example = self.examples[order[at]]
            if batch and total + example.num_tokens // 2 > self.config.tokens_per_step:
                break
            batch.append(example)
            total += example.num_tokens
            self.run.consumed += 1
        return batch

    def _log_steps(self, since_s: float, since_tokens: int) -> None:
        run = self.run
        seconds = max(run.elapsed_s - since_s, 1e-9)
        record: dict[str, Any] = {
            "event": "step",
            "step": run.step,
            "tokens": run.tokens,
            "lr": float(f"{self.config.lr * self._lr_share:.4g}"),
            "tokens_per_s": round((run.tokens - since_tokens) / seconds),
        }
        for mode, tally in self._tallies.items():
            record[mode] = tally.means()
            self._tallies[mode] = Tally()
        self.write(record)

    def write(self, record: dict[str, Any]) -> None:
        """One line for machines, one for people."""
        record = {"minutes": round(self.run.elapsed_s / 60, 2), **record}
        record = {k: round(v, 5) if isinstance(v, float) and k != "lr" else v for k, v in record.items()}
        with (self.out / "log.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        parts = []
        for key, value in record.items():
            inner = " ".join(f"{k} {v:.4g}" for k, v in value.items()) if isinstance(value, dict) else str(value)
            parts.append(f"{key} {inner}" if inner else "")
        self._tell(" | ".join(part for part in parts if part))


def check_examples(config: NativeConfig, examples: Sequence[Example]) -> None:
    """Refuse data that a run could not learn from.

    Raises:
        InvalidInput: no example, no segment that would be reused, or no loss for some steps.
    """
    if not examples:
        raise InvalidInput("no example to train on")
    policies = [config.policy_at(seam, condition=True) for seam in config.head_seams]
    if config.isolate_share and not any(reuses(make_plan(e.prompt, p)) for e in examples for p in policies):
        notes = make_plan(examples[0].prompt, policies[0]).notes
        why = next((note.reason for note in notes if note.reason), "no segment was found in it")
        raise InvalidInput(
            f"no row holds a segment that would be reused ({examples[0].where}: {why}); segments must stand in the "
            "messages word for word"
        )
    open_ended = [example for example in examples if not example.taught]
    if open_ended and not config.distill:
        raise InvalidInput(f"{open_ended[0].where} has no answer: give one, or train with distill above 0")
    anchored = config.document_loss or (config.distill and config.teacher == "base")
    if len(open_ended) == len(examples) and config.isolate_share < 1 and not anchored:
        raise InvalidInput(
            "no row has an answer, so ordinary steps have nothing to learn from: set teacher to base, document_loss "
            "above 0, or isolate_share to 1"
        )
