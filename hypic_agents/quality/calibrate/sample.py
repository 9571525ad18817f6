"""A file of sample prompts from the built-in world, with answers: something to calibrate the demo model on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.questions import FACTS_PER_DOCUMENT, NUM_DOCUMENTS
from hypic_agents.quality.worlds import TASKS, make_episode, render_messages

# Questions behind the same documents, as in an evaluation; where tools are asked for, each has documents of its own.
_TOGETHER: Final = 8
_TOOL_DOCUMENTS: Final = 2


def write_sample(path: Path, per_task: int, seed: int) -> int:
    """Write ``per_task`` questions of every task on held-out names; returns how many these are.

    Raises:
        InvalidInput: the file exists already, or cannot be written.
    """
    lines = [json.dumps(record, ensure_ascii=False) for task in TASKS for record in _records(task, per_task, seed)]
    try:
        with path.open("x", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
    except FileExistsError as error:
        raise InvalidInput(f"{path} exists already; remove it or name another file for --prompts") from error
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}") from error
    return len(lines)


def _records(task: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(f"sample/{seed}/{task}")
    made = 0
    while made < count:
        episode = make_episode(
            rng,
            num_documents=_TOOL_DOCUMENTS if task == "multi_tool" else NUM_DOCUMENTS,
            facts_per_document=FACTS_PER_DOCUMENT,
            split="heldout",
            tasks=(task,),
            num_questions=1 if task == "tool" else _TOGETHER,
        )
        for question in episode.questions:
            # Another task stands in where the documents hold nothing to ask about.
            if question.task != task or made == count:
                continue
            made += 1
            yield {
                "messages": render_messages(episode, question),
                "tools": list(episode.tools),
                "documents": [
                    {"text": part.text, "kind": part.kind, "source_id": part.source_id} for part in episode.documents
                ],
                "answer": question.answer,
            }
