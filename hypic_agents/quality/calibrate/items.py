"""Prompt records to prompts with the tokens of their answers: given ones, or full recompute's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from hypic_agents.completion import Completion
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import InvalidInput, InvalidPrompts
from hypic_agents.prompt.tool_calls import parse_tool_calls
from hypic_agents.quality.calibrate.prompts import PromptRecord
from hypic_agents.quality.questions import Item
from hypic_agents.runtime.policy import PRESETS

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

Progress = Callable[[str, int, int], None]

EXACT: Final = PRESETS["exact"]
_BATCH: Final = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt of the file, ready to be scored; ``item.answer_ids`` is what full recompute says if none was given."""

    record: PromptRecord
    item: Item

    @property
    def answered(self) -> bool:
        return self.record.answer is not None


def make_asked(
    engine: Engine, records: Sequence[PromptRecord], *, max_tokens: int, progress: Progress
) -> tuple[Asked, ...]:
    """Build all prompts, then let full recompute answer those without an answer, in ``max_tokens`` at most.

    Raises:
        InvalidPrompts: a prompt cannot be built, or does not fit the model's window; the message names the line.
    """
    asked = []
    for done, record in enumerate(records):
        progress("building prompts", done, len(records))
        try:
            item = _item(engine, record)
            engine.plan(item.prompt, EXACT, max_new_tokens=len(item.answer_ids) or max_tokens)
        except InvalidInput as error:
            raise InvalidPrompts(f"line {record.line}: {error}") from error
        asked.append(Asked(record, item))
    progress("building prompts", len(records), len(records))
    open_ones = [at for at, one in enumerate(asked) if not one.answered]
    sampling = SamplingParams(max_tokens=max_tokens)
    for start in range(0, len(open_ones), _BATCH):
        progress("answering with full recompute", start, len(open_ones))
        batch = open_ones[start : start + _BATCH]
        told = engine.generate_batch([asked[at].item.prompt for at in batch], sampling, EXACT)
        for at, completion in zip(batch, told, strict=True):
            answer_ids = _told(engine, completion)
            asked[at] = replace(asked[at], item=replace(asked[at].item, answer_ids=answer_ids))
    if open_ones:
        progress("answering with full recompute", len(open_ones), len(open_ones))
    return tuple(asked)


def _item(engine: Engine, record: PromptRecord) -> Item:
    if not record.messages:
        prompt = engine.builder.build(
            system=record.system, tools=record.tools, documents=record.documents, question=record.question
        )
        body = "\n\n".join([*(part.text for part in record.documents), record.question])
        front = [{"role": "system", "content": record.system}] if record.system else []
        messages: list[Any] = [*front, {"role": "user", "content": body}]
    else:
        messages = list(record.messages)
        prompt = engine.builder.build_chat(messages, tools=record.tools, segments=record.documents)
        for at, part in enumerate(record.documents):
            if part.text not in prompt.text:
                raise InvalidPrompts(
                    f"document {at} stands in no message; put its text into one verbatim, or give 'question' in place "
                    "of 'messages'"
                )
    answer_ids = () if record.answer is None else _given(engine, prompt, messages, record)
    return Item("", prompt, answer_ids)


def _given(engine: Engine, prompt: Prompt, messages: Sequence[Any], record: PromptRecord) -> tuple[int, ...]:
    """The tokens that the model's own chat template writes for the answer, to the end of the turn."""
    assert record.answer is not None
    ends = engine.tokenizer.eos_token_ids
    calls = [
        {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
        for call in parse_tool_calls(record.answer)
    ]
    # Templates mark a tool call with tokens of their own, so it is given as one.
    content: dict[str, Any] = {"content": "", "tool_calls": calls} if calls else {"content": record.answer}
    whole = engine.builder.build_chat([*messages, {"role": "assistant", **content}], tools=record.tools).token_ids
    if whole[: len(prompt)] == prompt.token_ids:
        for length, token in enumerate(whole[len(prompt) :], 1):
            if token in ends:
                return whole[len(prompt) : len(prompt) + length]
    return (*engine.tokenizer.encode_text(record.answer), *sorted(ends)[:1])


def _told(engine: Engine, completion: Completion) -> tuple[int, ...]:
    ended = completion.finish_reason == "stop"
    return (*completion.token_ids, *(sorted(engine.tokenizer.eos_token_ids)[:1] if ended else ()))
