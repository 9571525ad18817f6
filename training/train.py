"""Train the bundled model: ``python -m training.train --out DIR --minutes 108 [--isolate-share 0.6] [--resume]``."""

from __future__ import annotations

import argparse
import importlib
import json
import random
import signal
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from training.batches import MakeEpisode, Sampler, held_out
from training.checkpoint import Run, build_model, build_optimisers
from training.config import TrainConfig
from training.curriculum import Curriculum
from training.encode import Encoder
from training.evaluate import evaluate
from training.export import TOKENIZER_DIR, export
from training.parallel import Group, launch
from training.scoring import RunningMatch, loss_of, outcomes
from training.sequences import Forward


class Trainer:
    """The loop, its clock and its log. Every worker runs it; the first one writes."""

    def __init__(
        self, config: TrainConfig, run: Run, sampler: Sampler, forward: Forward, group: Group, out: Path, seed: int
    ) -> None:
        self.config, self.run, self.sampler, self.forward = config, run, sampler, forward
        self.group, self.out, self.seed = group, out, seed
        self.can_isolate = forward.__module__ != "training.plain_forward"
        self.net = packed_model(run.model) if self.can_isolate else run.model
        self.match = RunningMatch()
        self.examples: Any = ()
        self.stop = False
        self._began = time.monotonic()
        self._losses: list[tuple[float, float]] = []
        self._since = (self._began, 0, 0.0)

    def loop(self, budget_s: float) -> None:
        """Train until ``budget_s`` of wall clock, evaluations included, are spent."""
        run, config = self.run, self.config
        self._began = time.monotonic() - run.elapsed_s
        self._since = (time.monotonic(), run.tokens, 0.0)
        next_save = run.elapsed_s + config.checkpoint_every_s
        next_eval = run.elapsed_s + config.eval_every_s
        stopped = False
        while run.elapsed_s < budget_s and not stopped:
            stopped = self.step(run.elapsed_s / budget_s)
            if run.step % config.log_every_steps == 0:
                self.log_step()
            if run.elapsed_s >= next_save:
                self.save()
                next_save = run.elapsed_s + config.checkpoint_every_s
            if run.elapsed_s >= next_eval:
                self.log_eval()
                next_eval = run.elapsed_s + config.eval_every_s
        self.save()
        if not stopped:
            self.log_eval()

    def step(self, progress: float) -> bool:
        """One batch a worker, one update; True when the run was asked to stop."""
        run, config, group = self.run, self.config, self.group
        plan = run.curriculum.plan(random.Random(f"plan {self.seed} {run.step}"), can_isolate=self.can_isolate)
        began = time.monotonic()
        rng = random.Random(f"data {self.seed} {run.step} {group.rank}")
        batch = self.sampler.batch(plan.level, rng, config.tokens_per_step // group.size)
        data_s = time.monotonic() - began
        output = self.forward(
            self.net,
            [example.sequence for example in batch.examples],
            isolated=plan.isolated,
            head_seam=plan.head_seam,
            tail_seam=config.tail_seam,
            condition=plan.condition,
        )
        loss, answer_loss, document_loss = loss_of(output, config.document_loss)
        loss.backward()
        group.average_gradients(run.model)
        self.update(progress)
        clock = time.monotonic() - self._began
        made = (outcomes(output, batch.examples), batch.num_tokens, answer_loss, document_loss, self.stop, clock)
        results, tokens, answer_losses, document_losses, stops, clocks = zip(*group.gather(made), strict=True)
        flat = list(chain.from_iterable(results))
        self.match.add("isolated" if plan.isolated else "ordinary", flat)
        self._losses.append((sum(answer_losses) / group.size, sum(document_losses) / group.size))
        self._since = (*self._since[:2], self._since[2] + data_s)
        run.step += 1
        run.tokens += sum(tokens)
        run.elapsed_s = clocks[0]  # the first worker's, so that all leave the loop at the same step
        if run.curriculum.update(plan, flat, progress):
            self.write({"event": "level", "step": run.step, "level": str(config.levels[run.curriculum.level])})
        return any(stops)

    def update(self, progress: float) -> None:
        """Clip, then step both optimisers at the learning rate of ``progress``; skip gradients that are not finite."""
        run, config = self.run, self.config
        norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), config.clip)
        if torch.isfinite(norm):
            share = config.lr_share(run.step, progress)
            for optimiser, peak in ((run.muon, config.muon_lr), (run.adam, config.adam_lr)):
                for group in optimiser.param_groups:
                    group["lr"] = peak * share
                optimiser.step()
        else:
            self.write({"event": "skipped", "step": run.step})
        run.model.zero_grad(set_to_none=True)

    def save(self) -> None:
        """The run's checkpoint."""
        if self.group.rank == 0:
            self.run.save(self.out / "checkpoint.pt")

    def log_step(self) -> None:
        """Averages since the last call, and running exact match by task."""
        run, since = self.run, self._since
        now = time.monotonic()
        seconds, count = now - since[0], len(self._losses)
        self.write(
            {
                "event": "step",
                "step": run.step,
                "tokens": run.tokens,
                "level": str(self.config.levels[run.curriculum.level]),
                "answer_loss": round(sum(a for a, _ in self._losses) / count, 4),
                "document_loss": round(sum(d for _, d in self._losses) / count, 4),
                "tokens_per_s": round((run.tokens - since[1]) / seconds),
                "data_share": round(since[2] / seconds, 3),
                "lr_share": round(self.run.muon.param_groups[0]["lr"] / self.config.muon_lr, 3),
                "ordinary": self.match.by_task("ordinary"),
                "isolated": self.match.by_task("isolated"),
            }
        )
        self._losses.clear()
        self._since = (now, run.tokens, 0.0)

    def log_eval(self) -> None:
        """Held-out exact match, and an export of the weights it was measured on."""
        began = time.monotonic()
        result = evaluate(self.net, self.examples, self.forward, self.config, self.group, can_isolate=self.can_isolate)
        if self.group.rank == 0:
            export(self.run.model, self.sampler.encoder.tokenizer, self.out / "model")
        seconds = time.monotonic() - began
        self.write({"event": "eval", "step": self.run.step, "seconds": round(seconds, 1), **result})
        self._since = (self._since[0] + seconds, *self._since[1:])

    def write(self, record: dict[str, Any]) -> None:
        """One line for machines, one for people."""
        if self.group.rank:
            return
        record = {"minutes": round(self.run.elapsed_s / 60, 2), **record}
        with (self.out / "log.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        parts = []
        for key, value in record.items():
            shown = " ".join(f"{k}={v:.2f}" for k, v in value.items()) if isinstance(value, dict) else value
            parts.append(f"{key} [{shown}]" if isinstance(value, dict) else f"{key} {shown}")
        print(" | ".join(parts), flush=True)


def load_forward(name: str) -> Forward:
    """The forward pass ``packed`` (isolates documents) or ``plain``."""
    module = importlib.import_module("training.forward" if name == "packed" else "training.plain_forward")
    return module.forward  # type: ignore[no-any-return]


def packed_model(model: Any) -> Any:
    """``model`` with the engine's token mixing over the same parameters, which is what the packed pass runs."""
    from hypic_agents.runtime.models.hybrid import HybridModel, install_mixers
    from hypic_agents.runtime.models.qwen3_5 import GatedAttentionMixer, GatedDeltaMixer

    install_mixers(model.model, GatedDeltaMixer, GatedAttentionMixer)
    return HybridModel(model, model.model, model.config)


def build(
    config: TrainConfig,
    out: Path,
    seed: int,
    forward: Forward,
    tokenizer: Any,
    make_episode: MakeEpisode,
    tasks: tuple[str, ...],
    group: Group | None = None,
) -> Trainer:
    """A trainer at step 0."""
    model = build_model(tokenizer, config, seed)
    model.train()
    run = Run(model, *build_optimisers(model, config), Curriculum(config))
    encoder = Encoder(tokenizer)
    sampler = Sampler(config, encoder, make_episode, tasks)
    out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(config, run, sampler, forward, group or Group(), out, seed)
    trainer.examples = held_out(
        encoder, make_episode, tasks, config.eval_level, questions_per_task=config.eval_questions
    )
    return trainer


def work(group: Group, args: argparse.Namespace) -> None:
    """Train as one worker of ``group``."""
    from transformers import AutoTokenizer
    from transformers.utils import logging

    from hypic_agents.quality.worlds import TASKS, make_episode

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    forward = load_forward(args.forward)
    config = TrainConfig()
    config = config.native(args.isolate_share) if args.isolate_share else replace(config, isolate_share=0.0)
    trainer = build(config, args.out, args.seed, forward, tokenizer, make_episode, tuple(TASKS), group)
    if args.resume:
        trainer.run.load(args.out / "checkpoint.pt")
    signal.signal(signal.SIGTERM, lambda *_: setattr(trainer, "stop", True))
    trainer.loop(60 * args.minutes)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=108.0, help="wall-clock budget of the whole run")
    parser.add_argument("--threads", type=int, default=1, help="threads in all")
    parser.add_argument("--workers", type=int, default=None, help="processes; default one a thread")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--isolate-share", type=float, default=0.0, help="share of steps that read documents isolated")
    parser.add_argument("--forward", choices=("packed", "plain"), default="packed")
    parser.add_argument("--tokenizer", type=Path, default=TOKENIZER_DIR)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    workers = args.workers or args.threads
    launch(work, args, workers, max(1, args.threads // workers))


if __name__ == "__main__":
    main()
