"""Episodes to training sequences: render the chat, tokenise it whole, find documents and answers in it."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from training.sequences import TrainSequence

_ASSISTANT = b"<|im_start|>assistant\n"
_END = b"<|im_end|>"


@dataclass(frozen=True, slots=True)
class Example:
    """A sequence with what its accuracy is counted by.

    Attributes:
        sequence: The tokens and masks.
        tasks: Task of each question, in order.
        question_of_target: For each answer target, in order, the question it belongs to.
    """

    sequence: TrainSequence
    tasks: tuple[str, ...]
    question_of_target: tuple[int, ...]


class Encoder:
    """Turns episodes into examples with one byte-level tokenizer that has a ChatML template."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        special = set(tokenizer.get_added_vocab().values())
        tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        # A byte-level token writes each byte as one character; offsets of the tokenizer itself may leave out spaces.
        self._bytes = [len(t.encode()) if i in special else len(t) for i, t in enumerate(tokens)]

    def encode(self, episode: Any, *, is_blind: Callable[[Any], bool] = lambda _: False) -> Example:
        """Tokens, spans and answer targets of a whole chat. ``is_blind`` says which questions may not look back.

        Raises:
            ValueError: a document or answer is not in the rendered chat, or an answer does not begin at a token.
        """
        data = self.render(episode).encode()
        ids: list[int] = self.tokenizer(data.decode(), add_special_tokens=False)["input_ids"]
        ends = list(accumulate(self._bytes[i] for i in ids))
        if ends[-1] != len(data):
            raise ValueError("the tokenizer is not byte-level: token lengths do not add up to the text")
        starts = [0, *ends[:-1]]

        system = episode.system.encode()
        system_end = _find(data, system, 0) + len(system) if system else 0
        spans = []
        cursor = system_end
        for text in (*self._tool_texts(episode), *(document.text for document in episode.documents)):
            begin = _find(data, text.encode(), cursor)
            cursor = begin + len(text.encode())
            span = bisect_left(starts, begin), bisect_right(ends, cursor)
            if span[0] < span[1]:
                spans.append(span)

        mask = [False] * len(ids)
        question_of_target: list[int] = []
        blind: list[tuple[int, int]] = []
        turn = spans[-1][1] if spans else 0
        for number, question in enumerate(episode.questions):
            answer = question.answer.encode() + _END
            # Earlier assistant turns of a question's history hold calls, which are not answers.
            begin = _find(data, _ASSISTANT + answer, cursor) + len(_ASSISTANT)
            cursor = begin + len(answer)
            first, last = bisect_left(starts, begin), bisect_right(ends, cursor)
            if starts[first] != begin or ends[last - 1] != cursor:
                raise ValueError(f"answer {question.answer!r} is not a whole run of tokens")
            mask[first:last] = [True] * (last - first)
            question_of_target += [number] * (last - first)
            if is_blind(question):
                blind.append((turn, last))
            turn = last

        sequence = TrainSequence(
            token_ids=tuple(ids),
            answer_mask=tuple(mask),
            spans=tuple(spans),
            prefix_end=bisect_right(ends, system_end),
            num_tools=min(len(episode.tools), len(spans)),
            blind=tuple(blind),
        )
        return Example(sequence, tuple(q.task for q in episode.questions), tuple(question_of_target))

    def render(self, episode: Any) -> str:
        """The chat as text: system, documents with the first question, then answers and questions in turn."""
        documents = "\n\n".join(document.text for document in episode.documents)
        messages = [{"role": "system", "content": episode.system}] if episode.system else []
        for number, question in enumerate(episode.questions):
            text = question.text if number or not documents else f"{documents}\n\n{question.text}"
            messages += [{"role": "user", "content": text}, *question.history]
            messages.append({"role": "assistant", "content": question.answer})
        return self.tokenizer.apply_chat_template(messages, tools=list(episode.tools) or None, tokenize=False)

    def _tool_texts(self, episode: Any) -> tuple[str, ...]:
        return tuple(json.dumps(tool, ensure_ascii=False) for tool in episode.tools)


def _find(data: bytes, part: bytes, start: int) -> int:
    at = data.find(part, start)
    if at < 0:
        raise ValueError(f"{part[:60]!r} is not in the rendered chat")
    return at
