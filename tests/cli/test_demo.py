from __future__ import annotations

import json

import pytest

from hypic_agents.cli.demo import is_right
from hypic_agents.cli.demo_data import DemoQuestion, load_demo
from tests.cli.conftest import Invoke
from tests.cli.fakes import FakeEngine

DOCUMENTS, QUESTIONS = load_demo().documents, load_demo().questions
ANSWERS: dict[str, str | dict[str, str]] = {question.text: question.expected for question in QUESTIONS}
FIRST = QUESTIONS[0]


def test_every_question_is_shown_with_both_times(invoke: Invoke) -> None:
    result = invoke("demo", engine=FakeEngine(ANSWERS))
    assert result.exit_code == 0
    assert result.stdout.count("4.0x") == len(QUESTIONS) + 1
    assert f"{len(QUESTIONS)} of {len(QUESTIONS)} right with reuse" in result.stdout
    assert "≠" not in result.stdout


def test_an_answer_that_reuse_changed_is_marked(invoke: Invoke) -> None:
    engine = FakeEngine(ANSWERS | {FIRST.text: {"exact": FIRST.expected, "hypic": "7 kilograms"}})
    shown = invoke("demo", engine=engine)
    assert "7 kilograms ≠" in shown.stdout
    data = json.loads(invoke("demo", "--json", engine=engine).stdout)
    changed, *others = data["questions"]
    assert (changed["same_answer"], changed["exact"]["right"], changed["reuse"]["right"]) == (False, True, False)
    assert all(row["same_answer"] for row in others)
    assert data["summary"]["right_reuse"] == len(QUESTIONS) - 1


def test_segments_are_warmed_before_any_reuse_is_timed(invoke: Invoke) -> None:
    engine = FakeEngine(ANSWERS)
    invoke("demo", engine=engine)
    warmed = engine.requests[: len(DOCUMENTS)]
    for document, (prompt, sampling, policy) in zip(DOCUMENTS, warmed, strict=True):
        assert document.text in prompt.text
        assert (sampling.max_tokens, policy) == (1, "hypic")


def test_documents_change_order_and_the_seed_fixes_it(invoke: Invoke) -> None:
    def orders(seed: int) -> list[list[int]]:
        engine = FakeEngine(ANSWERS)
        invoke("demo", "--seed", str(seed), engine=engine)
        asked = engine.requests[-len(QUESTIONS) :]
        return [[prompt.text.index(document.text) for document in DOCUMENTS] for prompt, _, _ in asked]

    assert len({tuple(order) for order in orders(1)}) == len(QUESTIONS)
    assert orders(1) == orders(1)
    assert orders(1) != orders(2)


def test_documents_whose_order_matters_keep_it(invoke: Invoke) -> None:
    engine = FakeEngine(ANSWERS)
    invoke("demo", engine=engine)
    texts = {document.source_id: document.text for document in DOCUMENTS}
    assert any(question.in_order for question in QUESTIONS)
    for question, (prompt, _, _) in zip(QUESTIONS, engine.requests[-len(QUESTIONS) :], strict=True):
        places = [prompt.text.index(texts[source_id]) for source_id in question.in_order]
        assert places == sorted(places)


def test_demo_data_is_large_and_varied_enough() -> None:
    assert len(DOCUMENTS) >= 12
    assert len(QUESTIONS) >= 8
    assert len({document.source_id for document in DOCUMENTS}) == len(DOCUMENTS)
    assert len({question.text for question in QUESTIONS}) == len(QUESTIONS)


@pytest.mark.parametrize(
    ("answer", "right"), [("45", True), (" 45\n", True), ("It is 45.", False), ("450", False), ("", False)]
)
def test_only_the_exact_answer_is_right(answer: str, *, right: bool) -> None:
    assert is_right(DemoQuestion("?", "45"), answer) is right
