"""Steps of the curriculum: which level, which tasks, how many questions, until the token budget is full."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from training.config import COPY_TASKS, STATE_TASKS, Level, TrainConfig
from training.encode import Encoder, Example

MakeEpisode = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """The sequences of one step on one worker, all of one level."""

    examples: tuple[Example, ...]
    level: int

    @property
    def num_tokens(self) -> int:
        return sum(len(example.sequence.token_ids) for example in self.examples)


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws the sequences of a step."""

    config: TrainConfig
    encoder: Encoder
    make_episode: MakeEpisode
    tasks: Sequence[str]

    def batch(self, level: int, rng: random.Random, tokens: int) -> Batch:
        """Sequences of ``level`` with about ``tokens`` tokens, the same for the same ``rng``."""
        examples: list[Example] = []
        total = last = 0
        while total + last // 2 < tokens:
            example = self._example(level, rng)
            last = len(example.sequence.token_ids)
            total += last
            examples.append(example)
        return Batch(tuple(examples), level)

    def _example(self, level: int, rng: random.Random) -> Example:
        config = self.config
        stateful = level >= config.state_from_level
        tasks = [task for task in self.tasks if task != "multi_tool" and (stateful or task not in STATE_TASKS)]
        if level < config.copy_only_below:
            tasks = [task for task in tasks if task in COPY_TASKS]
        shape = config.levels[level]
        many = min(rng.randint(*config.questions), shape.num_documents * shape.facts_per_document)
        draw, num_tools = rng.random(), None
        if level >= config.many_tools_from_level and rng.random() < config.many_tools_share:
            shape, chosen, count = config.levels[1], ["multi_tool", "tool"], many
            num_tools = rng.choice(config.many_tools)
        elif draw < config.single_share:
            chosen, count = [rng.choice(tasks)], 1
        elif stateful and draw < config.single_share + config.state_share:
            # Over fewer documents too: there a sum is learnt, and a place has little to outlive.
            shape = config.levels[rng.randint(config.state_from_level, level)]
            chosen, count = list(STATE_TASKS), min(many, shape.num_documents * shape.facts_per_document)
        else:
            chosen, count = self._mixed(tasks, rng), many
        episode = self.make_episode(
            rng,
            num_documents=shape.num_documents,
            facts_per_document=shape.facts_per_document,
            split="train",
            tasks=tuple(chosen),
            num_questions=count,
            num_tools=num_tools,
        )
        return self.encoder.encode(episode, is_blind=lambda q: _tells_place(q) and rng.random() < config.blind_share)

    def _mixed(self, tasks: Sequence[str], rng: random.Random) -> list[str]:
        """Tasks of a sequence with many questions. A task named twice is asked twice as often."""
        without_tools, without_state = rng.random() < 0.5, rng.random() < 0.5
        dropped = {"tool"} if without_tools else set()
        if without_state:
            return [task for task in tasks if task not in (*STATE_TASKS, *dropped)]
        return [task for task in (*tasks, *(t for t in STATE_TASKS if t in tasks)) if task not in dropped]


def _tells_place(question: Any) -> bool:
    """Whether the question asks where something is that moved."""
    return question.task in STATE_TASKS and all(isinstance(event.amount, str) for _, event in question.evidence)


def held_out(
    encoder: Encoder,
    make_episode: MakeEpisode,
    tasks: Sequence[str],
    level: Level,
    *,
    questions_per_task: int,
    split: str = "heldout",
    seed: int = 20_000,
    questions_per_episode: int = 4,
) -> tuple[Example, ...]:
    """Fixed examples with names never trained on, about ``questions_per_task`` questions of each task."""
    rng = random.Random(seed)
    counts = dict.fromkeys(tasks, 0)
    examples: list[Example] = []
    while min(counts.values()) < questions_per_task and len(examples) < questions_per_task * len(tasks):
        wanted = [task for task in tasks if counts[task] < questions_per_task]
        example = encoder.encode(
            make_episode(
                rng,
                num_documents=level.num_documents,
                facts_per_document=level.facts_per_document,
                split=split,
                tasks=tuple(wanted),
                num_questions=questions_per_episode,
                num_tools=6,
            )
        )
        for task in example.tasks:
            counts[task] += 1
        examples.append(example)
    return tuple(examples)


def in_batches(examples: Sequence[Example], tokens: int) -> Iterator[tuple[Example, ...]]:
    """Groups of about ``tokens`` tokens, shortest examples first."""
    group: list[Example] = []
    total = 0
    for example in sorted(examples, key=lambda e: len(e.sequence.token_ids)):
        group.append(example)
        total += len(example.sequence.token_ids)
        if total >= tokens:
            yield tuple(group)
            group, total = [], 0
    if group:
        yield tuple(group)
