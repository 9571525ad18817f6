"""Watching retrievers, so that documents keep their borders after a chain has joined them into one text.

One callback handler, known to every run of the process, remembers which documents passed through a run tree. A model
called in that tree looks for them in its prompt, for its own scope. Documents that no model of their tree asked for go
to the default scope: a retriever called on its own, before the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from threading import Lock
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.callbacks.base import BaseCallbackManager
from langchain_core.documents import Document
from langchain_core.runnables.config import ensure_config
from langchain_core.tracers.context import register_configure_hook
from typing_extensions import override

from hypic_agents.core import Scope, Segment
from hypic_agents.integrations.langchain.documents import document_segment, documents_in
from hypic_agents.integrations.run_trees import RunTrees
from hypic_agents.prompt.registry import TextRegistry

REGISTRY: Final = TextRegistry()


class DocumentObserver(BaseCallbackHandler):
    """Collects documents by run tree: retrievers' results, and documents handed to chains. Safe between threads."""

    run_inline = True
    ignore_llm = True
    ignore_chat_model = True

    def __init__(self, registry: TextRegistry) -> None:
        self._registry = registry
        self._trees = RunTrees(self._register)

    def segments(self, run_id: UUID | None, scope: Scope) -> list[Segment]:
        """What was seen so far in the tree of a run, for a scope."""
        return [replace(segment, scope=scope) for segment in self._trees.ask(run_id)]

    @property
    def num_open(self) -> int:
        """Run trees that have not ended."""
        return len(self._trees)

    @override
    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        self._trees.begin(run_id, parent_run_id)
        self._see(run_id, documents_in(inputs))

    @override
    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        self._trees.begin(run_id, parent_run_id)

    @override
    def on_retriever_start(
        self,
        serialized: dict[str, Any],
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        self._trees.begin(run_id, parent_run_id)

    @override
    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        self._see(run_id, documents)
        self._trees.end(run_id)

    @override
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._trees.end(run_id)

    @override
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._trees.end(run_id)

    @override
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._trees.end(run_id)

    @override
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._trees.end(run_id)

    @override
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._trees.end(run_id)

    def _see(self, run_id: UUID, documents: Iterable[Document]) -> None:
        self._trees.see(run_id, [document_segment(document, Scope()) for document in documents])

    def _register(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            self._registry.register(segment)


OBSERVER: Final = DocumentObserver(REGISTRY)
_observer: ContextVar[BaseCallbackHandler | None] = ContextVar("hypic_document_observer", default=OBSERVER)
_installing = Lock()
_installed = False


def install() -> None:
    """Let every run of this process report to the observer. Does nothing the second time."""
    global _installed  # noqa: PLW0603
    with _installing:
        if not _installed:
            register_configure_hook(_observer, inheritable=True)
            _installed = True


def observed_segments(run_id: UUID | None, scope: Scope) -> list[Segment]:
    return OBSERVER.segments(run_id, scope)


def enclosing_run() -> UUID | None:
    """The run that this code runs in, where LangChain does not say it: streaming calls carry no run manager."""
    callbacks = ensure_config().get("callbacks")
    return callbacks.parent_run_id if isinstance(callbacks, BaseCallbackManager) else None
