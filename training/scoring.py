"""Loss and exact match of one forward pass, and running averages of the latter."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from training.encode import Example
from training.sequences import ANSWER, DOCUMENT, Output

Outcome = tuple[str, bool]


def loss_of(output: Output, document_loss: float) -> tuple[Tensor, float, float]:
    """``(loss, answer loss, document loss)``: mean over answers plus a share of the mean over document text."""
    parts = []
    for kind in (ANSWER, DOCUMENT):
        chosen = output.weights_kind == kind
        if bool(chosen.any()):
            parts.append(functional.cross_entropy(output.logits[chosen], output.targets[chosen]))
        else:
            parts.append(output.logits.sum() * 0.0)
    return parts[0] + document_loss * parts[1], float(parts[0].detach()), float(parts[1].detach())


@torch.no_grad()
def outcomes(output: Output, examples: Sequence[Example]) -> list[Outcome]:
    """``(task, right)`` of each question: right when every answer token is the most likely one (teacher-forced)."""
    chosen = output.weights_kind == ANSWER
    right = (output.logits[chosen].argmax(-1) == output.targets[chosen]).tolist()
    result: list[Outcome] = []
    at = 0
    for example in examples:
        whole = [True] * len(example.tasks)
        for question in example.question_of_target:
            whole[question] &= right[at]
            at += 1
        result += zip(example.tasks, whole, strict=True)
    if at != len(right):
        raise ValueError(f"{len(right)} answer targets in the output, {at} in the examples")
    return result


class RunningMatch:
    """Exact match over the latest questions of each (mode, task)."""

    def __init__(self, window: int = 200) -> None:
        self._seen: dict[tuple[str, str], deque[bool]] = defaultdict(lambda: deque(maxlen=window))

    def add(self, mode: str, results: Iterable[Outcome]) -> None:
        for task, right in results:
            self._seen[mode, task].append(right)

    def by_task(self, mode: str) -> dict[str, float]:
        """Exact match of each task seen under ``mode``."""
        return {task: sum(s) / len(s) for (m, task), s in sorted(self._seen.items()) if m == mode}

    def mean(self, mode: str, tasks: Iterable[str]) -> float | None:
        """Mean over those of ``tasks`` with at least 50 questions; None where there is none."""
        shares = [sum(s) / len(s) for t in tasks if len(s := self._seen[mode, t]) >= 50]
        return sum(shares) / len(shares) if shares else None

    def clear(self) -> None:
        self._seen.clear()
