"""Checkpoints of whole beginnings, in a radix tree over their tokens. No torch.

Conversations append, so the next prompt mostly begins with all of the last one. A node holds the keys and values of its
own tokens; what several beginnings share is held once. Where a beginning was checkpointed, the node that ends there
also holds the states behind it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Generic, cast

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.invalidation import Invalidation, InvalidationLog, VersionOrder
from hypic_agents.runtime.cache.prefix_base import Domain, Match, P, PrefixStats, S, Source, Symbol
from hypic_agents.runtime.cache.prefix_node import Node, holdings, link_laws


class PrefixTree(Generic[P, S]):
    """Finds, keeps and forgets checkpoints. Every verb is atomic and may be called from any thread.

    The least recently used checkpoint leaves first. One that others continue leaves its states only, because they need
    its keys and values; so of a long conversation the newest checkpoint stays longest.

    Conservation, after every verb: ``held_bytes`` is what all nodes take, at most ``budget_bytes``; every insert that
    was kept is still kept, evicted or invalidated; every leaf is a checkpoint; a node's texts begin among its tokens.

    Args:
        budget_bytes: Limit of ``held_bytes``.
        version_order: See :class:`~hypic_agents.runtime.cache.memory.MemoryStore`.

    Raises:
        InvalidInput: a negative budget.
    """

    def __init__(self, budget_bytes: int, *, version_order: VersionOrder = str) -> None:
        if budget_bytes < 0:
            raise InvalidInput(f"budget_bytes={budget_bytes}: use 0 or more")
        self._budget_bytes = budget_bytes
        self._version_order = version_order
        self._lock = Lock()
        self._roots: dict[Domain, Node] = {}
        self._recency: OrderedDict[Node, Domain] = OrderedDict()  # all checkpoints, longest unused first
        self._log = InvalidationLog()
        self._held_bytes = 0
        self._hits = self._misses = self._inserts = self._evictions = self._invalidated = self._rejected = 0

    @property
    def epoch(self) -> int:
        """Number of invalidations so far. Read it before a request computes, hand it to ``insert`` as ``since``."""
        with self._lock:
            return self._log.epoch

    def find(self, domain: Domain, symbols: tuple[Symbol, ...], *, least: int = 0, most: int) -> Match[P, S] | None:
        """The longest checkpoint of a beginning of ``symbols``, of more than ``least`` and up to ``most`` tokens."""
        with self._lock:
            node = self._roots.get(domain)
            path: list[Node] = []
            length = 0
            while node is not None and node.end < min(most, len(symbols)):
                node = node.children.get(symbols[node.end])
                if node is None or node.end > most or node.common(symbols) < len(node.symbols):
                    break
                path.append(node)
                if node.state is not None and node.end > least:
                    length = len(path)
            if not length:
                self._misses += 1
                return None
            self._hits += 1
            found = path[length - 1]
            self._recency.move_to_end(found)
            pages = tuple(cast("P", each.pages) for each in path[:length])
            return Match(found.end, cast("S", found.state), pages)

    def insert(
        self,
        domain: Domain,
        symbols: tuple[Symbol, ...],
        state: S,
        draw: Callable[[int, int], P],
        *,
        token_bytes: int,
        sources: Iterable[Source] = (),
        since: int | None = None,
    ) -> bool:
        """Keep a checkpoint behind all of ``symbols``; False if it is not kept.

        Args:
            domain: Every scope of the prompt.
            symbols: The whole beginning, one token at least.
            state: The states behind it.
            draw: Gives the pages of tokens ``[start, end)``; called at most once, for those that are not held yet.
            token_bytes: What one token takes in them.
            sources: Where the texts of the beginning come from.
            since: ``epoch`` when the request began; None if no invalidation can have overtaken it.

        Raises:
            Exception: what ``draw`` raised; nothing is kept.
        """
        sources = frozenset(source for source in sources if source[0] < len(symbols))
        with self._lock:
            named = holdings(domain, sources)
            if since is not None and any(self._log.overtook(one, since, self._version_order) for one in named):
                self._rejected += 1
                return False
            node = self._deepest(domain, symbols)
            missing = len(symbols) - node.end
            if not missing and node.state is not None:
                self._recency.move_to_end(node)
                self._add_sources(node, sources)
                return True
            if not self._make_room(state.nbytes + missing * token_bytes, node):
                self._rejected += 1
                self._prune(node, domain)
                return False
            if missing:
                try:
                    pages = draw(node.end, len(symbols))
                except BaseException:
                    self._prune(node, domain)  # making room may have left it without states, and nothing is below it
                    raise
                parent, node = node, Node(node, node.end, symbols[node.end :], pages)
                parent.children[node.symbols[0]] = node
                self._held_bytes += pages.nbytes
            node.state = state
            self._held_bytes += state.nbytes
            self._recency[node] = domain
            self._inserts += 1
            self._add_sources(node, sources)
            return True

    def withdraw(self, call: Invalidation | None) -> int:
        """Make every checkpoint that holds a covered text unfindable; without conditions, all. Returns how many.

        A prompt of several scopes is covered if one of them is: rather too much goes than too little.
        """
        with self._lock:
            self._log.append(call)
            before = self._invalidated
            for domain, root in list(self._roots.items()):
                todo = [root]
                for node in todo:
                    named = holdings(domain, node.sources)
                    if call is None or any(call.covers(one, self._version_order) for one in named):
                        self._drop(node, domain)
                    else:
                        todo.extend(node.children.values())
            return self._invalidated - before

    def check_integrity(self) -> None:
        """Recount everything.

        Raises:
            AssertionError: the conservation law is broken; the message says where.
        """
        with self._lock:
            below = [node for root in self._roots.values() for node in root.subtree() if node.parent is not None]
            laws = link_laws(below) | {
                "held_bytes is what the nodes take": self._held_bytes == sum(node.nbytes for node in below),
                "held_bytes is within the budget": self._held_bytes <= self._budget_bytes,
                "no root is empty": all(root.children for root in self._roots.values()),
                "checkpoints are the nodes with states": set(self._recency)
                == {node for node in below if node.state is not None},
                "inserts are kept, evicted or invalidated": self._inserts
                == len(self._recency) + self._evictions + self._invalidated,
            }
            broken = [law for law, holds in laws.items() if not holds]
        if broken:
            raise AssertionError(f"the tree of prefix checkpoints broke: {'; '.join(broken)}")

    def stats(self) -> PrefixStats:
        """A consistent snapshot."""
        with self._lock:
            return PrefixStats(
                hits=self._hits,
                misses=self._misses,
                inserts=self._inserts,
                evictions=self._evictions,
                invalidated=self._invalidated,
                rejected=self._rejected,
                held_bytes=self._held_bytes,
                budget_bytes=self._budget_bytes,
                checkpoints=len(self._recency),
                tokens=sum(len(node.symbols) for root in self._roots.values() for node in root.subtree()),
            )

    def _deepest(self, domain: Domain, symbols: tuple[Symbol, ...]) -> Node:
        """The node at which the part of ``symbols`` that is held ends; one is split if that lies inside it."""
        node = self._roots.setdefault(domain, Node(None, 0, (), None))
        while node.end < len(symbols) and (child := node.children.get(symbols[node.end])) is not None:
            common = child.common(symbols)
            if common < len(child.symbols):
                return child.split(common)
            node = child
        return node

    def _add_sources(self, node: Node | None, sources: frozenset[Source]) -> None:
        # Also to what was held before: the same text may have come from nowhere then.
        while node is not None:
            node.add_sources(sources)
            node = node.parent

    def _make_room(self, num_bytes: int, below: Node) -> bool:
        """Whether ``num_bytes`` more fit under ``below``; if so, there is room for them afterwards."""
        path = 0
        each: Node | None = below
        while each is not None:
            path += 0 if each.pages is None else each.pages.nbytes
            each = each.parent
        if path + num_bytes > self._budget_bytes:
            return False
        while self._held_bytes + num_bytes > self._budget_bytes:
            node, domain = self._recency.popitem(last=False)
            assert node.state is not None
            self._held_bytes -= node.state.nbytes
            node.state = None
            self._evictions += 1
            if node is not below:
                self._prune(node, domain, keep=below)
        return True

    def _prune(self, node: Node, domain: Domain, keep: Node | None = None) -> None:
        """Take away ``node`` and what is above it, as far as nothing needs their keys and values."""
        while node is not keep and not node.children and node.state is None:
            if node.parent is None:
                self._roots.pop(domain, None)
                return
            assert node.pages is not None
            self._held_bytes -= node.pages.nbytes
            del node.parent.children[node.symbols[0]]
            node = node.parent

    def _drop(self, top: Node, domain: Domain) -> None:
        """Take away a node with all below it."""
        for node in top.subtree():
            self._held_bytes -= node.nbytes
            if node.state is not None:
                del self._recency[node]
                self._invalidated += 1
        if top.parent is None:
            del self._roots[domain]
            return
        del top.parent.children[top.symbols[0]]
        self._prune(top.parent, domain)
