"""Watching retrievers and synthesizers, so that nodes keep their borders after they were joined into one text.

============================================  ======================================================================
seen                                          its nodes are known to
============================================  ======================================================================
a synthesizer that is given nodes             the scope of its model, at once
nodes that a retriever or postprocessor       models called in the same tree of spans, for their own scope; if none
returns, or that a retrieval event tells of   is, the default scope
============================================  ======================================================================

A model looks for them in its prompt, verbatim. Handlers stand on LlamaIndex's root dispatcher, which hears every span.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import replace
from threading import Lock
from typing import Any, Final

from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.instrumentation.span import BaseSpan, active_span_id
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.schema import BaseNode
from llama_index_instrumentation import get_dispatcher
from pydantic import PrivateAttr
from typing_extensions import override

from hypic_agents.core import Scope, Segment
from hypic_agents.integrations.llama_index.nodes import node_segments, nodes_in
from hypic_agents.integrations.run_trees import RunTrees
from hypic_agents.prompt.registry import TextRegistry

REGISTRY: Final = TextRegistry()


class NodeObserver(BaseSpanHandler[BaseSpan]):
    """Collects nodes by tree of spans. Safe between threads."""

    _registry: TextRegistry = PrivateAttr()
    _trees: RunTrees = PrivateAttr()

    def __init__(self, registry: TextRegistry) -> None:
        super().__init__()
        self._registry = registry
        self._trees = RunTrees(self._register)

    @classmethod
    def class_name(cls) -> str:
        return "HypicNodeObserver"

    @override
    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """A span begins. None is kept, as there is nothing to tell of it later."""
        self._trees.begin(id_, parent_span_id)
        nodes = nodes_in(bound_args.arguments.get("nodes"))
        scope = _scope_of(instance)
        if not nodes:
            return
        if scope is None:
            self.see(id_, nodes)
        else:
            self._register(segment for node in nodes for segment in node_segments(node, scope))
            self._trees.answered(id_)

    @override
    def prepare_to_exit_span(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, result: Any = None, **_: Any
    ) -> None:
        self.see(id_, nodes_in(result))
        self._trees.end(id_)

    @override
    def prepare_to_drop_span(
        self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None, err: Any = None, **_: Any
    ) -> None:
        self._trees.end(id_)

    def see(self, span_id: str | None, nodes: Iterable[BaseNode]) -> None:
        """Nodes that passed through a span; outside of any known one, they go to the default scope."""
        segments = [segment for node in nodes for segment in node_segments(node, Scope())]
        if segments and not self._trees.see(span_id, segments):
            self._register(segments)

    def segments(self, span_id: str | None, scope: Scope) -> list[Segment]:
        """What was seen so far in the tree of a span, for a scope."""
        return [replace(segment, scope=scope) for segment in self._trees.ask(span_id)]

    @property
    def num_open(self) -> int:
        """Trees of spans that have not ended."""
        return len(self._trees)

    def _register(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            self._registry.register(segment)


class RetrievalObserver(BaseEventHandler):
    """Hears of retrievals that no span shows."""

    _spans: NodeObserver = PrivateAttr()

    def __init__(self, spans: NodeObserver) -> None:
        super().__init__()
        self._spans = spans

    @classmethod
    def class_name(cls) -> str:
        return "HypicRetrievalObserver"

    def handle(self, event: BaseEvent, **_: Any) -> None:
        if isinstance(event, RetrievalEndEvent):
            self._spans.see(event.span_id, nodes_in(event.nodes))


OBSERVER: Final = NodeObserver(REGISTRY)
_installing = Lock()
_installed = False


def install() -> None:
    """Let every span of this process report to the observer. Does nothing the second time."""
    global _installed  # noqa: PLW0603
    with _installing:
        if not _installed:
            root = get_dispatcher()
            root.add_span_handler(OBSERVER)
            root.add_event_handler(RetrievalObserver(OBSERVER))
            _installed = True


def observed_segments(scope: Scope) -> list[Segment]:
    """Nodes seen in the tree of spans that this code runs in."""
    return OBSERVER.segments(active_span_id.get(), scope)


def _scope_of(synthesizer: Any) -> Scope | None:
    """Of the model that a synthesizer asks, also inside a ``StructuredLLM``."""
    model = getattr(synthesizer, "_llm", None)
    scope = getattr(getattr(model, "llm", model), "scope", None)
    return scope if isinstance(scope, Scope) else None
