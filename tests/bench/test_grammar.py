"""The grammar benchmark at a small size: every grammar lasts, and the figures add up."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hypic_agents.bench import grammar
from hypic_agents.core import Grammar
from hypic_agents.errors import HypicError
from hypic_agents.runtime.engine import Engine
from tests.runtime.models import engine as make_engine


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with make_engine() as made:
        yield made


def test_grammar(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "BATCHES", (1, 2))
    result = grammar.run(engine, repeats=1, seed=0, progress=lambda *_: None, steps=6)
    assert json.loads(json.dumps(result)) == result
    assert [(row["grammar"], row["batch"]) for row in result["rows"]] == [
        (g, b) for g in grammar.GRAMMARS for b in (1, 2)
    ]
    for row in result["rows"]:
        assert row["overhead"] == pytest.approx(row["grammar_s"] / row["free_s"] - 1)
    assert result["overhead_worst"] == max(row["overhead"] for row in result["rows"])


def test_an_answer_that_ends_early_is_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "GRAMMARS", {"short": Grammar("regex", "ab")})
    with pytest.raises(HypicError, match="an answer ended before"):
        grammar.run(engine, repeats=1, seed=0, progress=lambda *_: None, steps=6)
