"""Documents belong to the tree of runs that they were seen in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import Segment
from hypic_agents.integrations import run_trees
from hypic_agents.integrations.run_trees import RunTrees

DOCUMENTS = [Segment(f"document {i}") for i in range(4)]


def test_a_tree_is_asked_from_any_of_its_runs() -> None:
    unasked: list[Segment] = []
    trees = RunTrees(unasked.extend)
    trees.begin("query", None)
    trees.begin("retrieve", "query")
    assert trees.see("retrieve", DOCUMENTS[:2])
    trees.end("retrieve")
    trees.begin("chat", "query")
    assert trees.ask("chat") == DOCUMENTS[:2]
    trees.end("chat")
    trees.end("query")
    assert (len(trees), unasked) == (0, [])


def test_documents_of_a_tree_without_a_model_are_handed_on() -> None:
    unasked: list[Segment] = []
    trees = RunTrees(unasked.extend)
    for run in ("first", "second"):
        trees.begin(run, "a run from before the observer")
        trees.see(run, DOCUMENTS)
    trees.answered("second")
    trees.end("first")
    assert unasked == DOCUMENTS
    trees.end("second")
    assert unasked == DOCUMENTS


def test_what_is_not_known_holds_nothing() -> None:
    trees = RunTrees(lambda _: None)
    assert not trees.see("nobody", DOCUMENTS)
    assert not trees.see(None, DOCUMENTS)
    assert trees.ask(None) == []
    trees.answered("nobody")
    trees.end("nobody")


def test_trees_and_their_documents_are_bounded() -> None:
    trees = RunTrees(lambda _: None)
    for i in range(run_trees.MAX_TREES + 3):
        trees.begin(i, None)
    assert len(trees) == run_trees.MAX_TREES
    assert not trees.see(2, DOCUMENTS)
    last = run_trees.MAX_TREES + 2
    trees.see(last, [Segment(str(i)) for i in range(run_trees.MAX_DOCUMENTS + 5)])
    assert trees.ask(last)[0].text == "5"
    assert len(trees.ask(last)) == run_trees.MAX_DOCUMENTS


_RUN = st.integers(0, 6)


@given(st.lists(st.tuples(st.sampled_from(["begin", "end", "see", "ask"]), _RUN, st.none() | _RUN)))
def test_nothing_stays_when_all_runs_have_ended(steps: list[tuple[str, int, int | None]]) -> None:
    trees = RunTrees(lambda _: None)
    for verb, run, parent in steps:
        if verb == "begin":
            trees.begin(run, parent)
        elif verb == "see":
            trees.see(run, DOCUMENTS[:1])
        else:
            getattr(trees, verb)(run)
    for run in [*range(7), *range(7)]:
        trees.end(run)
    assert len(trees) == 0
    assert not trees._roots
