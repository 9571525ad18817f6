"""A sample of data from the built-in world, in both forms that a row may take."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Literal

from hypic_agents.errors import InvalidInput
from hypic_agents.quality.worlds import TASKS, make_episode, render_messages


def write_sample(
    path: Path,
    count: int,
    *,
    seed: int = 0,
    split: Literal["train", "heldout"] = "train",
    documents: int = 4,
    facts: int = 5,
    answers: bool = True,
) -> None:
    """Write ``count`` rows; the two splits share no made-up name.

    Args:
        path: A file that does not exist yet.
        count: At least 1.
        seed: Fixes the rows.
        split: Which made-up words may appear.
        documents: Documents of each row.
        facts: Facts of each document.
        answers: Leave them out to try distillation alone.

    Raises:
        InvalidInput: the file exists or cannot be written, or a number below 1.
    """
    if min(count, documents, facts) < 1:
        raise InvalidInput(f"a sample of {count} rows, {documents} documents of {facts} facts: use 1 or more of each")
    rng = random.Random(f"{split} {seed}")
    rows = [_row(rng, TASKS[i % len(TASKS)], split, documents, facts, answers=answers) for i in range(count)]
    try:
        with path.open("x", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    except FileExistsError as error:
        raise InvalidInput(f"{path} exists; give the sample another name") from error
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}") from error


def _row(
    rng: random.Random, task: str, split: Literal["train", "heldout"], documents: int, facts: int, *, answers: bool
) -> dict[str, Any]:
    episode = make_episode(
        rng,
        num_documents=documents,
        facts_per_document=facts,
        split=split,
        tasks=(task,),
        num_questions=1,
        num_tools=6 if task == "multi_tool" else None,
    )
    question = episode.questions[0]
    segments = [{"text": d.text, "kind": d.kind, "source_id": d.source_id} for d in episode.documents]
    row: dict[str, Any] = {"system": episode.system, "documents": segments, "question": question.text}
    if question.history:
        row = {"messages": render_messages(episode, question), "segments": segments}
    if episode.tools:
        row["tools"] = list(episode.tools)
    return row | {"answer": question.answer} if answers else row
