"""LangChain documents: which a value holds, and the segments they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.documents import Document

from hypic_agents.core import Scope, Segment


def document_segment(document: Document, scope: Scope) -> Segment:
    """A document's text and origin: "source_id" or "source" of its metadata, else its id; and "version"."""
    metadata = document.metadata
    source = metadata.get("source_id") or metadata.get("source") or document.id or ""
    version = metadata.get("version")
    return Segment(document.page_content, "document", str(source), "" if version is None else str(version), scope)


def documents_in(value: Any) -> list[Document]:
    """A document, a list of them, or those lists and documents that are values of a mapping."""
    if isinstance(value, Document):
        return [value]
    if isinstance(value, Mapping):
        return [document for item in value.values() if not isinstance(item, Mapping) for document in documents_in(item)]
    return [item for item in value if isinstance(item, Document)] if isinstance(value, list | tuple) else []
