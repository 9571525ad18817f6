"""Which parts of a chat's messages are documents: said outright, or known from the run they were retrieved in.

Hints never change a prompt. Where they are wrong, nothing is lost but reuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, ToolMessage

from hypic_agents.core import Scope, Segment
from hypic_agents.integrations.langchain.documents import document_segment, documents_in
from hypic_agents.integrations.langchain.messages import document_text
from hypic_agents.integrations.langchain.observe import REGISTRY, observed_segments
from hypic_agents.prompt.recover import recover


def find_segments(
    messages: Sequence[BaseMessage], sent: Sequence[Mapping[str, Any]], scope: Scope, run_id: Any
) -> list[Segment]:
    """Segments for a request.

    Args:
        messages: As LangChain gave them.
        sent: The same in the backend's shape.
        scope: Whose they are.
        run_id: The run that the model was called in; documents retrieved in its run tree count.
    """
    seen = [document_segment(document, scope) for document in _artifacts(messages)]
    for segment in [*seen, *observed_segments(run_id, scope)]:
        REGISTRY.register(segment)
    return recover(sent, list(_declared(messages, scope)), registry=REGISTRY, scope=scope)


def _declared(messages: Sequence[BaseMessage], scope: Scope) -> Iterator[Segment]:
    """Content blocks that are documents, or that their author marked with ``cache_control``."""
    for message in messages:
        for block in message.content if isinstance(message.content, list) else ():
            if not isinstance(block, dict):
                continue
            text = document_text(block)
            if text is None and block.get("cache_control") and isinstance(block.get("text"), str):
                text = block["text"]
            if text is not None and message.type != "system":
                source = block.get("title") or block.get("id") or ""
                yield Segment(text, "document", str(source), scope=scope)


def _artifacts(messages: Sequence[BaseMessage]) -> Iterator[Document]:
    """Documents that tools returned beside their text."""
    for message in messages:
        if isinstance(message, ToolMessage):
            yield from documents_in(message.artifact)
