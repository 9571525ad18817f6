"""What the demo reads and asks. Every name and number is made up, so no model can know an answer beforehand."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from importlib.resources import files

from hypic_agents.core import Segment


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """A question, the exact answer, and the sources whose order the answer depends on."""

    text: str
    expected: str
    in_order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DemoData:
    """Everything the demo needs."""

    system: str
    documents: tuple[Segment, ...]
    questions: tuple[DemoQuestion, ...]


def load_demo() -> DemoData:
    """The packaged documents and questions (``training/pick_demo.py`` chose them)."""
    raw = json.loads(files("hypic_agents.cli").joinpath("demo.json").read_text("utf-8"))
    return DemoData(
        raw["system"],
        tuple(Segment(d["text"], d["kind"], d["source_id"]) for d in raw["documents"]),
        tuple(DemoQuestion(q["text"], q["expected"], tuple(q["in_order"])) for q in raw["questions"]),
    )


def shuffled(documents: tuple[Segment, ...], in_order: tuple[str, ...], rng: random.Random) -> list[Segment]:
    """The documents in a new order in which those of ``in_order`` still follow each other."""
    order = rng.sample(documents, len(documents))
    places = [i for i, document in enumerate(order) if document.source_id in in_order]
    kept = {document.source_id: document for document in documents}
    for place, source_id in zip(places, in_order, strict=True):
        order[place] = kept[source_id]
    return order
