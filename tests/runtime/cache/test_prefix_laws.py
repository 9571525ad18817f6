"""Laws 6 and 7 on the tree of prefix checkpoints, beside a plain dict that holds the same."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hypic_agents.core import Scope
from hypic_agents.runtime.cache.invalidation import Invalidation
from hypic_agents.runtime.cache.prefix import PrefixTree
from hypic_agents.runtime.cache.prefix_base import Domain, Symbol
from tests.runtime.cache.test_prefix import Letters, State

SCOPES = [Scope("a"), Scope("b"), Scope("a", frozenset({"g"}))]
DOMAINS = st.sets(st.sampled_from(SCOPES), min_size=1, max_size=2).map(frozenset)
SYMBOLS = st.lists(st.sampled_from([1, 2, (2, "composed")]), min_size=1, max_size=7).map(tuple)
SOURCES = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from(["doc", "faq"]), st.sampled_from(["", "1", "2"])), max_size=2
)
CALLS = st.builds(
    Invalidation,
    source_id=st.sampled_from(["doc", "faq"]),
    version_before=st.sampled_from([None, "2"]),
    tenant=st.sampled_from([None, "a"]),
) | st.builds(Invalidation, tenant=st.sampled_from(["a", "b"]), group=st.sampled_from([None, "g"]))

Key = tuple[Domain, tuple[Symbol, ...]]


class TreeMachine(RuleBasedStateMachine):
    """A tree whose budget is never reached: it holds exactly what the dict holds."""

    budget = 1 << 20

    def __init__(self) -> None:
        super().__init__()
        self.tree: PrefixTree[Letters, State] = PrefixTree(self.budget)
        self.kept: dict[Key, State] = {}
        # A text of a source stands behind these tokens, its own first one included.
        self.sources: set[tuple[Domain, tuple[Symbol, ...], str, str]] = set()

    @rule(domain=DOMAINS, symbols=SYMBOLS, sources=SOURCES, nbytes=st.sampled_from([0, 3, 9]), late=st.booleans())
    def insert(
        self,
        domain: Domain,
        symbols: tuple[Symbol, ...],
        sources: list[tuple[int, str, str]],
        nbytes: int,
        late: bool,
    ) -> None:
        state = State(nbytes)
        since = self.tree.epoch
        if late:
            self.withdraw(Invalidation(source_id="doc"))
        kept = self.tree.insert(
            domain, symbols, state, lambda a, b: Letters(symbols[a:b]), token_bytes=1, sources=sources, since=since
        )
        overtaken = late and any(name == "doc" and at < len(symbols) for at, name, _ in sources)
        assert not (kept and overtaken)
        if not self.tight:
            assert kept != overtaken
        if kept:
            if self.tight:
                self.forget_evicted()
            self.kept.setdefault((domain, symbols), state)
            self.sources |= {(domain, symbols[: at + 1], *rest) for at, *rest in sources if at < len(symbols)}

    @rule(domain=DOMAINS, symbols=SYMBOLS, least=st.integers(0, 3), most=st.integers(0, 8))
    def find(self, domain: Domain, symbols: tuple[Symbol, ...], least: int, most: int) -> None:
        most = min(most, len(symbols))
        lengths = [n for n in range(least + 1, most + 1) if (domain, symbols[:n]) in self.kept]
        match = self.tree.find(domain, symbols, least=least, most=most)
        assert (0 if match is None else match.length) == max(lengths, default=0)
        if match is not None:
            assert match.state is self.kept[domain, symbols[: match.length]]
            assert sum((page.symbols for page in match.pages), ()) == symbols[: match.length]

    @rule(call=CALLS)
    def withdraw(self, call: Invalidation) -> None:
        gone = {key for key in self.kept if self.covered(call, *key)}
        assert self.tree.withdraw(call) == len(gone)
        self.kept = {key: state for key, state in self.kept.items() if key not in gone}
        self.forget_sources()

    @rule()
    def clear(self) -> None:
        assert self.tree.withdraw(None) == len(self.kept)
        self.kept.clear()
        self.sources.clear()

    @invariant()
    def whole(self) -> None:
        self.tree.check_integrity()
        tokens = {(domain, symbols[:n]) for domain, symbols in self.kept for n in range(1, len(symbols) + 1)}
        stats = self.tree.stats()
        assert stats.checkpoints == len(self.kept)
        assert stats.tokens == len(tokens)
        assert stats.held_bytes == len(tokens) + sum(state.nbytes for state in self.kept.values())

    @property
    def tight(self) -> bool:
        return self.budget < 1 << 20

    def covered(self, call: Invalidation, domain: Domain, symbols: tuple[Symbol, ...]) -> bool:
        scopes = [
            scope
            for scope in domain
            if call.tenant in (None, scope.tenant) and (call.group is None or call.group in scope.groups)
        ]
        before = call.version_before
        return bool(scopes) and (
            call.source_id is None
            or any(
                (held, name) == (domain, call.source_id)
                and symbols[: len(head)] == head
                and (before is None or version < before)
                for held, head, name, version in self.sources
            )
        )

    def forget_sources(self) -> None:
        """Those of tokens that nothing holds any more."""
        self.sources = {
            one
            for one in self.sources
            if any(domain == one[0] and symbols[: len(one[1])] == one[1] for domain, symbols in self.kept)
        }

    def forget_evicted(self) -> None:
        held = set()
        for node, domain in self.tree._recency.items():
            path, each = (), node
            while each.parent is not None:
                path, each = each.symbols + path, each.parent
            held.add((domain, path))
        self.kept = {key: state for key, state in self.kept.items() if key in held}
        self.forget_sources()


class TightTreeMachine(TreeMachine):
    """As above, with a budget that evicts all the time; the dict forgets what was evicted."""

    budget = 30


SETTINGS = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestTree = TreeMachine.TestCase
TestTree.settings = SETTINGS
TestTightTree = TightTreeMachine.TestCase
TestTightTree.settings = SETTINGS
