"""Rows to exact token ids and spans, by the same builder that serves requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import ContextOverflow, HypicError, InvalidInput
from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from hypic_agents.runtime.engine import Engine
from training.native.rows import Row


@dataclass(frozen=True, slots=True)
class Example:
    """One row, tokenised.

    Attributes:
        where: File and line of the row.
        prompt: What the runtime would be asked.
        answer_ids: What follows it, to the token that ends the turn; empty where nothing is given.
        taught: The answer was given, so the loss takes it as the truth; else the model wrote it itself.
    """

    where: str
    prompt: Prompt
    answer_ids: tuple[int, ...]
    taught: bool

    @property
    def num_tokens(self) -> int:
        """Tokens that a full pass computes: all but the last, which is a target only."""
        return len(self.prompt) + max(0, len(self.answer_ids) - 1)


def encode_rows(rows: Sequence[Row], tokenizer: ChatTokenizer, *, window: int, room: int = 1) -> list[Example]:
    """Tokenise every row whole, with the model's own chat template.

    Args:
        rows: From :func:`~training.native.rows.read_rows`.
        tokenizer: The model's.
        window: Longest sequence of the model in tokens.
        room: Tokens kept free behind a prompt without an answer.

    Raises:
        InvalidInput: a row that cannot be rendered or does not fit the window, with its line.
    """
    builder = PromptBuilder(tokenizer)
    examples = []
    for row in rows:
        try:
            example = _encode(row, tokenizer, builder)
            wanted = len(example.answer_ids) or room
            if len(example.prompt) + wanted > window:
                raise ContextOverflow(len(example.prompt), wanted, window)
        except HypicError as error:
            raise InvalidInput(f"{row.where}: {error}") from error
        examples.append(example)
    return examples


def _encode(row: Row, tokenizer: ChatTokenizer, builder: PromptBuilder) -> Example:
    prompt = builder.build_chat(row.messages, tools=row.tools, segments=row.segments)
    if row.answer is None:
        return Example(row.where, prompt, (), taught=False)
    ends = tokenizer.eos_token_ids
    # As the template writes the finished turn, so that calls get the tokens it marks them with.
    whole = builder.build_chat([*row.messages, row.answer], tools=row.tools).token_ids
    if whole[: len(prompt)] == prompt.token_ids:
        for length, token in enumerate(whole[len(prompt) :], 1):
            if token in ends:
                return Example(row.where, prompt, whole[len(prompt) : len(prompt) + length], taught=True)
    if row.answer.get("tool_calls"):
        raise InvalidInput(
            "the chat template writes a finished turn otherwise than it opens one, so the tokens of a "
            "tool call are not known"
        )
    text = row.answer["content"]
    if not isinstance(text, str):
        raise InvalidInput("give this answer as one text, because the chat template reopens the turn")
    return Example(row.where, prompt, (*tokenizer.encode_text(text), *sorted(ends)[:1]), taught=True)


def continued(engine: Engine, examples: Sequence[Example], length: int) -> list[Example]:
    """The examples, those without an answer continued by the model itself: greedy, by full recompute."""
    todo = [i for i, example in enumerate(examples) if not example.answer_ids]
    done = engine.generate_batch([examples[i].prompt for i in todo], SamplingParams(max_tokens=length), "exact")
    result = list(examples)
    for i, completion in zip(todo, done, strict=True):
        end = sorted(engine.tokenizer.eos_token_ids)[:1] if completion.finish_reason == "stop" else []
        result[i] = replace(examples[i], answer_ids=(*completion.token_ids, *end)[:length])
    return result
