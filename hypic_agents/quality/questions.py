"""The questions of an evaluation: prompts behind shared documents and the tokens of their exact answers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from hypic_agents.core import Prompt, Segment
from hypic_agents.errors import InvalidInput
from hypic_agents.prompt.tool_calls import parse_tool_calls
from hypic_agents.quality.worlds import TASKS, Episode, Question, make_episode, render_messages

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine

NUM_DOCUMENTS: Final = 8
# Twenty tool specs are the segments of these questions; a few documents stand behind them.
_FEWER_DOCUMENTS: Final = {"multi_tool": 2}
FACTS_PER_DOCUMENT: Final = 6
# Later statements win or add to earlier ones: these questions keep the order of their documents.
_ORDERED: Final = frozenset({"override", "running"})
# Questions behind the same documents. Only an episode of one question may hold a tool result in its history.
_EPISODE_SIZES: Final = {"tool": (8, 1, 1, 1, 1)}
_USUAL_SIZES: Final = (8,)


@dataclass(frozen=True, slots=True)
class Item:
    """One question, ready to be asked.

    Attributes:
        task: Its task.
        prompt: Everything up to the answer.
        answer_ids: The exact answer and the token that ends it.
        question: What is asked, with its evidence; None where a prompt was not made from a question.
        documents: The documents as ``question.needs`` counts them; in the prompt they may stand in another order.
    """

    task: str
    prompt: Prompt
    answer_ids: tuple[int, ...]
    question: Question | None = None
    documents: tuple[Segment, ...] = ()


def check_tasks(tasks: Sequence[str] | None) -> tuple[str, ...]:
    """The tasks to ask, all by default.

    Raises:
        InvalidInput: an unknown one.
    """
    unknown = sorted(set(tasks or ()) - set(TASKS))
    if unknown:
        raise InvalidInput(f"unknown task {unknown[0]!r}; the tasks are {', '.join(TASKS)}")
    return tuple(dict.fromkeys(tasks)) if tasks else TASKS


def make_items(engine: Engine, task: str, count: int, seed: int) -> list[Item]:
    """``count`` questions of one task on held-out names. They depend on seed, task and tokenizer alone.

    Questions of one episode follow each other, each in a prompt of its own behind the same documents: in a fresh
    order where the task does not depend on it.
    """
    rng = random.Random(f"{seed}/{task}")
    items: list[Item] = []
    for size in cycle(_EPISODE_SIZES.get(task, _USUAL_SIZES)):
        episode = make_episode(
            rng,
            num_documents=_FEWER_DOCUMENTS.get(task, NUM_DOCUMENTS),
            facts_per_document=FACTS_PER_DOCUMENT,
            split="heldout",
            tasks=(task,),
            num_questions=size,
        )
        for question in episode.questions:
            # Another task stands in where the documents hold nothing to ask about.
            if question.task == task and len(items) < count:
                item = _item(engine, _shuffled(episode, task, rng), question)
                items.append(replace(item, documents=episode.documents))
        if len(items) == count:
            return items
    raise AssertionError("cycle never ends")


def _shuffled(episode: Episode, task: str, rng: random.Random) -> Episode:
    if task in _ORDERED:
        return episode
    return replace(episode, documents=tuple(rng.sample(episode.documents, len(episode.documents))))


def _item(engine: Engine, episode: Episode, question: Question) -> Item:
    messages = render_messages(episode, question)
    prompt = engine.builder.build_chat(messages, tools=episode.tools, segments=episode.documents)
    answer_ids = _answer_ids(engine, prompt, messages, episode, question.answer)
    return Item(question.task, prompt, answer_ids, question, episode.documents)


def _answer_ids(
    engine: Engine, prompt: Prompt, messages: Sequence[dict[str, Any]], episode: Episode, answer: str
) -> tuple[int, ...]:
    """The tokens that the model's own chat template writes for the answer, to the end of the turn."""
    ends = engine.tokenizer.eos_token_ids
    whole = engine.builder.build_chat([*messages, _reply(answer)], tools=episode.tools).token_ids
    if whole[: len(prompt)] == prompt.token_ids:
        for length, token in enumerate(whole[len(prompt) :], 1):
            if token in ends:
                return whole[len(prompt) : len(prompt) + length]
    return (*engine.tokenizer.encode_text(answer), *sorted(ends)[:1])


def _reply(answer: str) -> dict[str, Any]:
    """The assistant's message. A tool call is given as one, because templates mark it with tokens of their own."""
    calls = [
        {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
        for call in parse_tool_calls(answer)
    ]
    return (
        {"role": "assistant", "content": "", "tool_calls": calls} if calls else {"role": "assistant", "content": answer}
    )
