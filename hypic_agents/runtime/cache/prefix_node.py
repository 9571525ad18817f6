"""One edge of the tree of beginnings. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypic_agents.core import Scope
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.prefix_base import Domain, Pages, Snapshot, Source, Symbol


@dataclass(slots=True, eq=False)
class Node:
    """The tokens from ``start`` to ``end`` of one or more beginnings; a checkpoint at ``end`` if it has a state.

    Attributes:
        symbols: Those tokens.
        pages: Their keys and values; None at a root, which holds no token.
        sources: Where texts that begin among them come from.
    """

    parent: Node | None
    start: int
    symbols: tuple[Symbol, ...]
    pages: Pages | None
    state: Snapshot | None = None
    sources: frozenset[Source] = frozenset()
    children: dict[Symbol, Node] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.symbols)

    @property
    def nbytes(self) -> int:
        pages = 0 if self.pages is None else self.pages.nbytes
        return pages + (0 if self.state is None else self.state.nbytes)

    def common(self, symbols: tuple[Symbol, ...]) -> int:
        """How many of its tokens a beginning that leads here shares."""
        end = min(self.end, len(symbols))
        if symbols[self.start : end] == self.symbols[: end - self.start]:
            return end - self.start
        return next(i for i, (a, b) in enumerate(zip(self.symbols, symbols[self.start : end], strict=False)) if a != b)

    def split(self, at: int) -> Node:
        """Put a new node of the first ``at`` tokens above this one, and return it."""
        assert self.parent is not None and self.pages is not None and 0 < at < len(self.symbols)
        first, rest = self.pages.split(at)
        middle = self.start + at
        upper = Node(
            self.parent,
            self.start,
            self.symbols[:at],
            first,
            sources=frozenset(source for source in self.sources if source[0] < middle),
            children={self.symbols[at]: self},
        )
        self.parent.children[self.symbols[0]] = upper
        self.parent, self.start, self.symbols, self.pages = upper, middle, self.symbols[at:], rest
        self.sources -= upper.sources
        return upper

    def add_sources(self, sources: frozenset[Source]) -> None:
        """Remember those that begin among its tokens."""
        self.sources |= {source for source in sources if self.start <= source[0] < self.end}

    def subtree(self) -> list[Node]:
        """It and all below it, parents first."""
        nodes = [self]
        for node in nodes:
            nodes.extend(node.children.values())
        return nodes


def link_laws(nodes: Iterable[Node]) -> dict[str, bool]:
    """Whether each of some nodes, of which none is a root, stands in its tree as it should, by law."""
    links = [(node, node.parent) for node in nodes]
    return {
        "every leaf is a checkpoint": all(node.children or node.state is not None for node, _ in links),
        "a node's texts begin among its tokens": all(
            node.start <= start < node.end for node, _ in links for start, _, _ in node.sources
        ),
        "edges lead on without gaps": all(
            node.symbols and parent is not None and node.start == parent.end for node, parent in links
        ),
        "children stand under their first token": all(
            parent is not None and parent.children.get(node.symbols[0]) is node for node, parent in links
        ),
    }


@dataclass(frozen=True, slots=True)
class Holding:
    """What an invalidation asks of an entry, said of a node seen in one of its scopes."""

    scope: Scope
    sources: tuple[tuple[str, str], ...]

    @property
    def key(self) -> SegmentKey:
        return SegmentKey("", "", self.scope, "", 0)


def holdings(domain: Domain, sources: Iterable[Source]) -> list[Holding]:
    """Texts of these sources as each scope of a prompt sees them."""
    named = tuple((source_id, version) for _, source_id, version in sources)
    return [Holding(scope, named) for scope in domain]
