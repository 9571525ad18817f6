"""Episodes: documents, questions about them, and the chat messages that put both to a model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypic_agents.core import Segment
from hypic_agents.quality.worlds.board import Board, draw_styles
from hypic_agents.quality.worlds.documents import KIND_OF_STYLE, render_document
from hypic_agents.quality.worlds.names import Names, Split
from hypic_agents.quality.worlds.questions import Asker, Question
from hypic_agents.quality.worlds.running import make_ledger, make_level, make_walk
from hypic_agents.quality.worlds.tools import Tool, make_tools

TASKS: Final[tuple[str, ...]] = ("single", "two_hop", "override", "running", "not_stated", "tool", "multi_tool")
MAX_QUESTIONS: Final = 16
MANY_TOOLS: Final = 20

_TASK_WEIGHTS: Final = {
    "single": 22, "two_hop": 18, "override": 13, "running": 20, "not_stated": 13, "tool": 30, "multi_tool": 30,
}  # fmt: skip
_TOOL_TASKS: Final = frozenset({"tool", "multi_tool"})
_SYSTEM: Final = (
    "You answer questions from the documents. Give the value only. If documents differ, the last one counts. "
    "If no document says, answer: not stated."
)
_OTHER_SYSTEMS: Final = (
    "Read the documents and answer briefly. Later documents replace earlier ones. Say not stated if nothing tells.",
    "You are a careful assistant. Use only the documents and tools. Without an answer, reply: not stated.",
    "Answer from the given text. A newer statement wins over an older one. Otherwise write not stated.",
    "You help with notes, files and tools. Keep answers short. Unknown answers are: not stated.",
)


@dataclass(frozen=True, slots=True)
class Episode:
    """A system prompt, tool specs (OpenAI functions), documents in prompt order, and questions about them."""

    system: str
    tools: tuple[dict[str, Any], ...]
    documents: tuple[Segment, ...]
    questions: tuple[Question, ...]


def make_episode(
    rng: random.Random,
    *,
    num_documents: int,
    facts_per_document: int,
    split: Split,
    tasks: Sequence[str] | None = None,
    num_questions: int | None = None,
    num_tools: int | None = None,
) -> Episode:
    """Make one episode; the same ``rng`` state gives the same episode.

    Args:
        rng: Source of all chance.
        num_documents: Documents, at least 1.
        facts_per_document: Facts and events in each, at least 1 (about 18 tokens each).
        split: Which made-up words may appear; the two splits share none.
        tasks: Kinds of question; None mixes all of ``TASKS``. If nothing of these kinds can be asked at this size,
            one single or not_stated question is asked instead.
        num_questions: Most questions to ask; None asks one for two facts, 16 at most. There may be fewer when the
            documents do not hold so many. Questions with a tool result in their history appear only with 1.
        num_tools: Tool specs in the prompt where there are any; None means 20 for multi_tool and 2 to 5 otherwise.

    Raises:
        ValueError: Sizes below 1, or an unknown task.
    """
    return build_world(
        rng,
        num_documents=num_documents,
        facts_per_document=facts_per_document,
        split=split,
        tasks=tasks,
        num_questions=num_questions,
        num_tools=num_tools,
    )[0]


def build_world(
    rng: random.Random,
    *,
    num_documents: int,
    facts_per_document: int,
    split: Split,
    tasks: Sequence[str] | None = None,
    num_questions: int | None = None,
    num_tools: int | None = None,
) -> tuple[Episode, Board]:
    """Like ``make_episode``, with the board behind the documents."""
    if min(num_documents, facts_per_document, 1 if num_questions is None else num_questions) < 1:
        raise ValueError("num_documents, facts_per_document and num_questions must be at least 1")
    if unknown := set(tasks or ()) - set(TASKS):
        raise ValueError(f"unknown tasks {sorted(unknown)}; known: {', '.join(TASKS)}")
    names = Names(rng, split)
    slots = num_documents * facts_per_document
    count = num_questions or min(MAX_QUESTIONS, max(1, slots // 2))
    with_tools = bool(_TOOL_TASKS & set(tasks or ())) or rng.random() < 0.25
    usual = MANY_TOOLS if "multi_tool" in (tasks or ()) else rng.randint(2, 5)
    tools = make_tools(rng, num_tools or usual) if with_tools else ()
    plan = _plan(rng, tasks, count, with_tools)

    eventful = "running" in plan
    styles = draw_styles(rng, num_documents, max(2, (num_documents * 2 + 2) // 3) if eventful else 0)
    board = Board(names, rng, styles, facts_per_document)
    _populate(board, rng, plan, slots)
    board.fill()
    questions = _questions(board, rng, plan, tools, free=tasks is None, history=num_questions == 1)
    system = _SYSTEM if rng.random() < 0.7 else rng.choice(_OTHER_SYSTEMS)
    documents = tuple(
        Segment(
            render_document(rng, draft.style, draft.items),
            KIND_OF_STYLE[draft.style],
            draft.module.name if draft.module else f"{draft.style}-{draft.index + 1}",
        )
        for draft in board.drafts
    )
    return Episode(system, tuple(tool.spec for tool in tools), documents, questions), board


def _plan(rng: random.Random, tasks: Sequence[str] | None, count: int, with_tools: bool) -> list[str]:
    """The task of every question."""
    options = [task for task in tasks or TASKS if with_tools or task not in _TOOL_TASKS]
    return rng.choices(options, [_TASK_WEIGHTS[task] for task in options], k=count)


def _populate(board: Board, rng: random.Random, plan: Sequence[str], slots: int) -> None:
    """Put in what the planned questions need, as far as there is room."""
    wanted = Counter(plan)
    for _ in range(min(wanted["running"], max(2, slots // 8))):
        # Sums are harder to learn than places, so training asks for more of them.
        quantity = rng.random() < (0.35 if board.names.heldout else 0.5)
        board.add_steps(rng.choice((make_ledger, make_level)) if quantity else make_walk)
    for _ in range(min(wanted["override"], max(1, slots // 5))):
        # A second try draws other documents and another entity.
        _ = board.add_override() or board.add_override()
    for _ in range(min(wanted["two_hop"], max(1, slots // 4))):
        board.add_chain()


def _questions(
    board: Board, rng: random.Random, plan: Sequence[str], tools: tuple[Tool, ...], *, free: bool, history: bool
) -> tuple[Question, ...]:
    """One question for each planned task; another task stands in where the board holds none (more)."""
    asker = Asker(board, rng, tools)
    questions: list[Question] = []
    for task in plan:
        question = asker.ask(task, history=history and rng.random() < 0.25)
        if question is None and free:
            question = asker.ask("two_hop") or asker.ask("single")
        if question is not None:
            questions.append(question)
    if not questions:
        stand_in = asker.ask("single") or asker.ask("not_stated")
        questions.extend([stand_in] if stand_in else [])
    return tuple(questions)


def render_messages(episode: Episode, question: Question) -> list[dict[str, Any]]:
    """Chat messages for one question, documents first; what follows is the assistant's answer."""
    body = "\n\n".join((*(document.text for document in episode.documents), question.text))
    return [
        {"role": "system", "content": episode.system},
        {"role": "user", "content": body},
        *question.history,
    ]
