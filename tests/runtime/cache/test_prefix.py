"""The tree of prefix checkpoints, verb by verb."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from hypic_agents.core import Scope
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.invalidation import Invalidation
from hypic_agents.runtime.cache.prefix import PrefixTree
from hypic_agents.runtime.cache.prefix_base import Match, Symbol

ACME, OTHER = frozenset({Scope("acme")}), frozenset({Scope("other")})


@dataclass(eq=False)
class State:
    nbytes: int = 10


@dataclass(eq=False)
class Letters:
    """Pages of one byte a token."""

    symbols: tuple[Symbol, ...]

    @property
    def nbytes(self) -> int:
        return len(self.symbols)

    def split(self, at: int) -> tuple[Letters, Letters]:
        return Letters(self.symbols[:at]), Letters(self.symbols[at:])


Tree = PrefixTree[Letters, State]


def ids(text: str) -> tuple[Symbol, ...]:
    return tuple(map(ord, text))


def keep(tree: Tree, text: str, domain: frozenset[Scope] = ACME, nbytes: int = 10, **options: object) -> State | None:
    """Insert a checkpoint behind ``text``; its state, None if it is not kept."""
    symbols, state = ids(text), State(nbytes)
    drawn: list[tuple[int, int]] = []

    def draw(start: int, end: int) -> Letters:
        drawn.append((start, end))
        return Letters(symbols[start:end])

    kept = tree.insert(domain, symbols, state, draw, token_bytes=1, **options)  # type: ignore[arg-type]
    tree.check_integrity()
    assert len(drawn) <= 1
    return state if kept else None


def find(tree: Tree, text: str, domain: frozenset[Scope] = ACME, least: int = 0) -> Match[Letters, State] | None:
    match = tree.find(domain, ids(text), least=least, most=len(text) - 1)
    if match is not None:
        assert sum((page.symbols for page in match.pages), ()) == ids(text[: match.length])
    return match


def length(tree: Tree, text: str, domain: frozenset[Scope] = ACME) -> int:
    match = find(tree, text, domain)
    return 0 if match is None else match.length


def test_the_longest_checkpoint_is_found_and_what_is_shared_is_held_once() -> None:
    tree = Tree(1000)
    keep(tree, "system user")
    keep(tree, "system user answer")
    left, right = keep(tree, "system user answer one"), keep(tree, "system user answer two")
    found = find(tree, "system user answer two more")
    assert found is not None and found.state is right
    assert find(tree, "system user answer one more").state is left  # type: ignore[union-attr]
    assert length(tree, "system user answer other") == len("system user answer")
    assert tree.stats().held_bytes == 4 * 10 + len("system user answer one") + len("two") == 40 + tree.stats().tokens


def test_a_split_inside_an_edge_is_no_checkpoint() -> None:
    tree = Tree(1000)
    keep(tree, "abcdef")
    keep(tree, "abcxyz")
    assert length(tree, "abcq") == 0
    assert length(tree, "abcdefg") == 6
    assert tree.stats().checkpoints == 2
    keep(tree, "abc")
    assert length(tree, "abcq") == 3


def test_bounds_are_kept() -> None:
    tree = Tree(1000)
    keep(tree, "abc")
    keep(tree, "abcdef")
    assert find(tree, "abcdef").length == 3  # type: ignore[union-attr]  # the last token is for its logits
    assert find(tree, "abcdef", least=3) is None
    assert find(tree, "abcdefg", least=3).length == 6  # type: ignore[union-attr]


def test_how_a_token_was_composed_is_part_of_its_name() -> None:
    tree = Tree(1000)
    live, composed = (1, 2, 3), (1, (2, "transition"), 3)
    for symbols in (live, composed):
        tree.insert(ACME, symbols, State(), lambda a, b, s=symbols: Letters(s[a:b]), token_bytes=1)  # type: ignore[misc]
    assert tree.stats().checkpoints == 2
    assert tree.find(ACME, (1, (2, "addition"), 3, 4), most=3) is None
    assert tree.find(ACME, (*composed, 4), most=3).pages[-1].symbols == composed[1:]  # type: ignore[union-attr]


def test_scopes_share_nothing() -> None:
    tree = Tree(1000)
    keep(tree, "abc")
    assert length(tree, "abcd", OTHER) == length(tree, "abcd", ACME | OTHER) == 0
    assert tree.withdraw(Invalidation(tenant="other")) == 0
    assert tree.withdraw(Invalidation(tenant="acme")) == 1
    assert length(tree, "abcd") == 0
    assert tree.stats().held_bytes == 0


def test_the_newest_checkpoint_of_a_conversation_stays_longest() -> None:
    tree = Tree(50)
    for text in ("aa", "aabb", "aabbcc", "aabbccdd", "aabbccddee"):
        assert keep(tree, text) is not None
    assert length(tree, "aabbccddee+") == 10
    assert length(tree, "aa+") == 0
    assert tree.stats().evictions == 1
    keep(tree, "other" * 4)
    assert length(tree, "aabbccddee+") == 10
    assert length(tree, "aabbcc+") == 0


def test_another_conversation_takes_the_place_of_one_nobody_asks_for() -> None:
    tree = Tree(60)
    keep(tree, "shared" + "a" * 30)
    assert keep(tree, "shared" + "b" * 30) is not None
    assert length(tree, "shared" + "a" * 31) == 0
    assert length(tree, "shared" + "b" * 31) == 36


def test_what_is_used_stays() -> None:
    tree = Tree(45)
    for text in ("aaaa", "bbbb", "cccc"):
        keep(tree, text)
    assert length(tree, "aaaa+") == 4
    keep(tree, "dddd")
    assert [length(tree, text + "+") for text in ("aaaa", "bbbb", "dddd")] == [4, 0, 4]


def test_what_cannot_fit_leaves_all_as_it_was() -> None:
    tree = Tree(40)
    keep(tree, "abcd")
    assert keep(tree, "abxy" * 20) is None
    assert keep(tree, "z", nbytes=41) is None
    assert length(tree, "abcd+") == 4
    assert tree.stats().rejected == 2
    assert keep(Tree(0), "abcd") is None


def test_a_source_takes_everything_behind_it_away() -> None:
    tree = Tree(1000)
    keep(tree, "system")
    keep(tree, "system doc ask", sources=[(7, "doc", "1")])
    keep(tree, "system doc ask answer", sources=[(7, "doc", "1")])
    keep(tree, "system else", sources=[(7, "else", "1")])
    assert tree.withdraw(Invalidation("doc", version_before="1")) == 0
    assert tree.withdraw(Invalidation("doc", tenant="other")) == 0
    assert tree.withdraw(Invalidation("doc", version_before="2")) == 2
    tree.check_integrity()
    assert length(tree, "system doc ask answer+") == 6
    assert length(tree, "system else+") == 11


def test_a_text_whose_source_becomes_known_later_goes_with_it() -> None:
    tree = Tree(1000)
    keep(tree, "pasted doc")
    keep(tree, "pasted doc ask", sources=[(7, "doc", "1")])
    assert tree.withdraw(Invalidation("doc")) == 2
    assert tree.stats().tokens == 0


def test_a_split_divides_the_sources() -> None:
    tree = Tree(1000)
    keep(tree, "one two end", sources=[(0, "one", ""), (4, "two", "")])
    keep(tree, "one other")
    assert tree.withdraw(Invalidation("two")) == 1
    tree.check_integrity()
    assert length(tree, "one other+") == 9
    assert tree.withdraw(Invalidation("one")) == 1


def test_an_invalidation_overtakes_those_that_run() -> None:
    tree = Tree(1000)
    since = tree.epoch
    tree.withdraw(Invalidation("doc"))
    assert keep(tree, "a doc", sources=[(2, "doc", "1")], since=since) is None
    assert keep(tree, "a doc", sources=[(2, "doc", "2")], since=tree.epoch) is not None
    assert keep(tree, "a text", since=since) is not None
    assert tree.withdraw(None) == 2
    assert keep(tree, "a text", since=since) is None


def test_a_match_outlives_what_the_tree_drops() -> None:
    tree = Tree(1000)
    keep(tree, "abc")
    match = find(tree, "abcd")
    tree.withdraw(None)
    assert match is not None and match.pages[0].symbols == ids("abc")


@pytest.mark.parametrize(
    ("before", "text", "budget"),
    [((), "abcd", 100), (("abcd",), "abxy", 100), (("abc",), "abcdef", 18), (("zzz", "abc"), "abcdef", 18)],
)
def test_a_draw_that_fails_leaves_the_tree_whole(before: tuple[str, ...], text: str, budget: int) -> None:
    def draw(start: int, end: int) -> Letters:
        raise MemoryError

    tree = Tree(budget)
    for one in before:
        keep(tree, one)
    with pytest.raises(MemoryError):
        tree.insert(ACME, ids(text), State(), draw, token_bytes=1)
    tree.check_integrity()
    assert length(tree, text + "+") == 0
    for one in ("other", "aother", text):
        assert keep(tree, one) is not None
    assert length(tree, text + "+") == len(text)


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(InvalidInput, match="-1"):
        Tree(-1)


def test_threads_leave_it_whole() -> None:
    tree = Tree(120)

    def work(name: str) -> None:
        for i in range(60):
            text = f"shared {name} {i % 7}"
            symbols = ids(text)
            tree.insert(ACME, symbols, State(), lambda a, b, s=symbols: Letters(s[a:b]), token_bytes=1)  # type: ignore[misc]
            find(tree, text + "+")
            if i % 20 == 0:
                tree.withdraw(Invalidation(tenant="acme"))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tree.check_integrity()
