"""LlamaIndex nodes: which a value holds, and the segments they make."""

from __future__ import annotations

from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from hypic_agents.core import Scope, Segment


def node_segments(node: BaseNode, scope: Scope) -> list[Segment]:
    """A node's text as synthesizers write it: behind its metadata, and bare.

    Its source is "source_id" of its metadata, else the document it was cut from, else the node itself.
    """
    origin = node.source_node
    source = node.metadata.get("source_id") or (origin.node_id if origin is not None else node.node_id)
    version = node.metadata.get("version")
    texts = dict.fromkeys(node.get_content(mode) for mode in (MetadataMode.LLM, MetadataMode.NONE))
    return [
        Segment(text, "document", str(source), "" if version is None else str(version), scope)
        for text in texts
        if text.strip()
    ]


def nodes_in(value: Any) -> list[BaseNode]:
    """Of a list of retrieved nodes; of any other value none, such as the nodes that an index is built from."""
    if not isinstance(value, list | tuple):
        return []
    return [item.node for item in value if isinstance(item, NodeWithScore)]
