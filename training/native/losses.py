"""The losses of one pass, as sums, so that passes of a step add up to the same whatever their number."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from training.native.config import NativeConfig
from training.native.passes import Predictions
from training.native.targets import ANSWER, DISTILLED, DOCUMENT, FOLLOW


@dataclass(slots=True)
class Tally:
    """Sums over targets since the last report, nats, and exact matches of given answers."""

    answer: float = 0.0
    document: float = 0.0
    kl: float = 0.0
    num_answer: int = 0
    num_document: int = 0
    num_kl: int = 0
    right: list[bool] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.answer += other.answer
        self.document += other.document
        self.kl += other.kl
        self.num_answer += other.num_answer
        self.num_document += other.num_document
        self.num_kl += other.num_kl
        self.right += other.right

    def means(self) -> dict[str, float]:
        """What was seen, on average: losses in nats a token, and the share of answers that came out whole."""
        pairs = {
            "answer_loss": (self.answer, self.num_answer),
            "document_loss": (self.document, self.num_document),
            "kl": (self.kl, self.num_kl),
            "exact_match": (float(sum(self.right)), len(self.right)),
        }
        return {name: round(total / count, 5) for name, (total, count) in pairs.items() if count}


def losses_of(
    made: Predictions, teacher: Tensor | None, counts: Counter[int], config: NativeConfig
) -> tuple[Tensor, Tally]:
    """The pass's share of its step's loss, and what to report.

    Args:
        made: The pass.
        teacher: Logits ``[distilled targets, vocab]`` of full recompute, in the order of ``made``; None where nothing
            is distilled.
        counts: Targets of the whole step by kind.
        config: Weights of the losses.
    """
    tally = Tally()
    loss = made.logits.sum() * 0.0
    answer, document = made.kinds == ANSWER, made.kinds == DOCUMENT
    if bool(answer.any()):
        total = functional.cross_entropy(made.logits[answer], made.tokens[answer], reduction="sum")
        loss = loss + total / counts[ANSWER]
        tally.answer, tally.num_answer, tally.right = total.item(), int(answer.sum()), _right(made, answer)
    if bool(document.any()):
        each = functional.cross_entropy(made.logits[document], made.tokens[document], reduction="none")
        total = (each * made.weights[document]).sum()
        loss = loss + config.document_loss * total / counts[DOCUMENT]
        tally.document, tally.num_document = total.item(), int(made.weights[document].sum())
    if teacher is not None and len(teacher):
        follows = distilled(made)
        truth = teacher.log_softmax(-1)
        total = (truth.exp() * (truth - made.logits[follows].log_softmax(-1))).sum()
        loss = loss + config.distill * total / (counts[ANSWER] + counts[FOLLOW])
        tally.kl, tally.num_kl = total.item(), len(teacher)
    return loss, tally


def distilled(made: Predictions) -> Tensor:
    """Which targets are distilled, bool ``[N]``."""
    return torch.isin(made.kinds, torch.tensor(DISTILLED, device=made.kinds.device))


@torch.no_grad()
def _right(made: Predictions, answer: Tensor) -> list[bool]:
    """For each example with a given answer, whether every one of its tokens is the most likely."""
    whole: dict[int, bool] = {}
    hits = (made.logits[answer].argmax(-1) == made.tokens[answer]).tolist()
    owners = [owner for owner, chosen in zip(made.owners, answer.tolist(), strict=True) if chosen]
    for owner, hit in zip(owners, hits, strict=True):
        whole[owner] = whole.get(owner, True) and hit
    return list(whole.values())
