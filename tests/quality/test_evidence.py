"""Where a document states what a question needs: the words are found in every style, and are the right ones."""

from __future__ import annotations

import random
import re

import pytest

from hypic_agents.quality.worlds import TASKS, make_episode
from hypic_agents.quality.worlds.code import constant, default, imported
from hypic_agents.quality.worlds.episode import build_world
from hypic_agents.quality.worlds.evidence import find_statement
from hypic_agents.quality.worlds.running import Event
from hypic_agents.quality.worlds.schema import Entity, Fact
from hypic_agents.quality.worlds.tables import ATTRIBUTES

LAMP, KETTLE = (Entity("product", f"Velmo {noun}", f"the Velmo {noun}") for noun in ("lamp", "kettle"))
PRICE = next(a for a in ATTRIBUTES["product"] if a.key == "price")
NUMBER = next(a for a in ATTRIBUTES["product"] if a.key == "part number")
FILE = Entity("module", "bikar.py", "file bikar.py")


def fact(entity: Entity, attribute: object, value: str) -> Fact:
    return Fact(entity, attribute, value, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "item", "statement", "before"),
    [
        (
            "As of today, the Velmo lamp costs 45 crowns.",
            fact(LAMP, PRICE, "45 crowns"),
            "the Velmo lamp costs 45 crowns",
            "today, ",
        ),
        (
            "The price of the Velmo lamp is 4 crowns.",
            fact(LAMP, PRICE, "4 crowns"),
            "The price of the Velmo lamp is 4 crowns",
            "",
        ),
        (
            "The Velmo kettle costs 4 crowns. The Velmo lamp, which is listed as KX48, costs 4 crowns.",
            fact(LAMP, PRICE, "4 crowns"),
            "costs 4 crowns",
            "KX48, ",
        ),
        (
            "# Velmo kettle\nPrice: 4 crowns\n\n# Velmo lamp\nPart number: KX48\nPrice: 4 crowns",
            fact(LAMP, PRICE, "4 crowns"),
            "Price: 4 crowns",
            "KX48\n",
        ),
        (
            'search("Velmo kettle") -> {"part_number": "KX48"}\nsearch("Velmo lamp") -> {"part_number": "KX481"}',
            fact(KETTLE, NUMBER, "KX48"),
            '"part_number": "KX48"',
            "{",
        ),
        ("# bikar.py\nMAX_ITEMS = 39\nPORT = 3\n", fact(FILE, constant("PORT"), "3"), "PORT = 3", "39\n"),
        ('# bikar.py\nTHEME = "Maido"', fact(FILE, constant("THEME"), "Maido"), 'THEME = "Maido"', "py\n"),
        (
            "# bikar.py\ndef send_row(size=4):\n    pass\ndef load_row(size=4):\n    pass",
            fact(FILE, default("load_row", "size"), "4"),
            "load_row(size=4)",
            "def ",
        ),
        ("# bikar.py\nfrom lamdo import PORT", fact(FILE, imported("PORT"), "lamdo"), "from lamdo import PORT", ""),
        (
            "Log:\n> Someone took 2 boxes from the depot.",
            Event("someone took 2 boxes from the depot", -2),
            "Someone took 2 boxes from the depot",
            "> ",
        ),
        ("- The cat goes to bay 7.", Event("the cat goes to bay 7", "7"), "The cat goes to bay 7", "- "),
    ],
)
def test_words_and_value_are_found(text, item, statement, before):
    found = find_statement(text, item)
    assert found is not None
    assert text[found.start : found.end] == statement
    assert text[: found.start].endswith(before)
    value = item.value if isinstance(item, Fact) else str(item.amount).lstrip("-")
    assert text[found.value_start : found.value_end] == value
    assert found.start <= found.value_start < found.value_end <= found.end


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("The Velmo lamp costs 451 crowns.", fact(LAMP, PRICE, "45 crowns")),
        ("Price: 45 crowns", fact(LAMP, PRICE, "45 crowns")),
        ("The Velmo kettle costs 45 crowns.", fact(LAMP, PRICE, "45 crowns")),
        ("The cat goes to bay 77.", Event("the cat goes to bay 7", "7")),
    ],
)
def test_what_is_not_stated_is_not_found(text, item):
    assert find_statement(text, item) is None


def test_every_fact_of_a_document_is_found_at_a_place_of_its_own():
    for seed in range(40):
        made, board = build_world(
            random.Random(seed), num_documents=8, facts_per_document=6, split=("train", "heldout")[seed % 2]
        )
        for draft, document in zip(board.drafts, made.documents, strict=True):
            found = [find_statement(document.text, item) for item in draft.items]
            assert all(found), (document.text, draft.items)
            assert len({one.value_start for one in found if one}) == len(draft.items), document.text


@pytest.mark.parametrize("task", TASKS)
def test_questions_name_the_evidence_in_the_documents_they_need(task):
    rng = random.Random(4)
    for _ in range(15):
        made = make_episode(rng, num_documents=8, facts_per_document=6, split="train", tasks=(task,), num_questions=6)
        for question in made.questions:
            assert sorted(index for index, _ in question.evidence) == list(question.needs)
            for index, item in question.evidence:
                found = find_statement(made.documents[index].text, item)
                assert found is not None
                value = made.documents[index].text[found.value_start : found.value_end]
                if question.task == "two_hop":
                    assert re.search(rf"\b{re.escape(value)}\b", question.answer)
            if question.task == "single":
                assert value == question.answer
