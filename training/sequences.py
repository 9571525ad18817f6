"""What the forward passes take and give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

OTHER, ANSWER, DOCUMENT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class TrainSequence:
    """One training sequence.

    Attributes:
        token_ids: The whole chat.
        answer_mask: True where ``token_ids[i]`` is a target of the answer loss: answers and their closing token.
        spans: Token ranges ``[start, end)`` of tool specs and documents: the tokens wholly inside each one's text.
        prefix_end: Tokens up to the end of the system text, before the first span.
        num_tools: How many of the first spans are tool specs.
        blind: Token ranges ``[start, end)`` of questions with their answers that may not attend to document tokens, so
            that what they need of them must come through the recurrent state.
    """

    token_ids: tuple[int, ...]
    answer_mask: tuple[bool, ...]
    spans: tuple[tuple[int, int], ...]
    prefix_end: int
    num_tools: int = 0
    blind: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """Predictions in sequence order, then position order.

    Attributes:
        logits: [N, vocab], float32.
        targets: [N], the token that follows.
        weights_kind: [N] uint8: ``ANSWER``, ``DOCUMENT`` or ``OTHER``.
    """

    logits: Tensor
    targets: Tensor
    weights_kind: Tensor


class Forward(Protocol):
    """A differentiable forward pass over training sequences."""

    def __call__(
        self,
        model: nn.Module,
        sequences: Sequence[TrainSequence],
        *,
        isolated: bool,
        head_seam: int,
        tail_seam: int,
        condition: bool,
    ) -> Output: ...
