"""Which documents passed through a tree of nested runs, so that a model called in it knows what its prompt may hold.

Frameworks name each run (a chain, a span) and the run around it. Documents belong to the tree: the outermost run with
all that runs inside. What no model of a tree asked for is handed on when the tree ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from hypic_agents.core import Segment

MAX_TREES: Final = 1024
MAX_DOCUMENTS: Final = 2048  # of one tree


@dataclass(slots=True)
class _Tree:
    """The open runs of a tree, and the documents seen in it by text."""

    runs: set[Hashable] = field(default_factory=set)
    documents: OrderedDict[str, Segment] = field(default_factory=OrderedDict)
    asked: bool = False


class RunTrees:
    """Trees of runs that are open. Safe between threads.

    Args:
        on_unasked: Takes the documents of a tree that ended without :meth:`ask` or :meth:`answered`.
    """

    def __init__(self, on_unasked: Callable[[Iterable[Segment]], None]) -> None:
        self._on_unasked = on_unasked
        self._trees: OrderedDict[Hashable, _Tree] = OrderedDict()
        self._roots: dict[Hashable, Hashable] = {}
        self._lock = Lock()

    def begin(self, run: Hashable, parent: Hashable | None) -> None:
        with self._lock:
            if run in self._roots:
                return
            # A parent that is not known began unseen, or too long ago: the run is a tree of its own.
            root = run if parent is None else self._roots.get(parent, run)
            self._roots[run] = root
            self._trees.setdefault(root, _Tree()).runs.add(run)
            while len(self._trees) > MAX_TREES:
                self._drop(next(iter(self._trees)))

    def see(self, run: Hashable | None, documents: Iterable[Segment]) -> bool:
        """Add documents to the tree of a run; False if the run is not known."""
        with self._lock:
            tree = self._tree(run)
            if tree is None:
                return False
            for document in documents:
                tree.documents[document.text] = document
                tree.documents.move_to_end(document.text)
            while len(tree.documents) > MAX_DOCUMENTS:
                tree.documents.popitem(last=False)
            return True

    def ask(self, run: Hashable | None) -> list[Segment]:
        """What was seen so far in the tree of a run."""
        with self._lock:
            tree = self._tree(run)
            if tree is None:
                return []
            tree.asked = True
            return list(tree.documents.values())

    def answered(self, run: Hashable) -> None:
        """The documents of this tree have found their model in another way."""
        with self._lock:
            tree = self._tree(run)
            if tree is not None:
                tree.asked = True

    def end(self, run: Hashable) -> None:
        """Forget a run; its tree with the outermost one."""
        with self._lock:
            root = self._roots.pop(run, None)
            if root is None:
                return
            if root != run:
                self._trees[root].runs.discard(run)
                return
            tree = self._drop(root)
        if tree is not None and not tree.asked:
            self._on_unasked(tree.documents.values())

    def __len__(self) -> int:
        with self._lock:
            return len(self._trees)

    def _tree(self, run: Hashable | None) -> _Tree | None:
        root = self._roots.get(run)
        return None if root is None else self._trees.get(root)

    def _drop(self, root: Hashable) -> _Tree | None:
        tree = self._trees.pop(root, None)
        for run in tree.runs if tree is not None else ():
            self._roots.pop(run, None)
        return tree
