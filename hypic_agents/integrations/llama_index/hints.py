"""Which parts of a chat's messages are documents: said outright, filled into a template, or seen on their way.

Hints never change a prompt. Where they are wrong, nothing is lost but reuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage

from hypic_agents.core import Scope, Segment
from hypic_agents.integrations.llama_index.messages import declared_segments
from hypic_agents.integrations.llama_index.observe import REGISTRY, observed_segments
from hypic_agents.prompt.recover import MIN_STRETCH_LEN, recover

# What the user asks now, in LlamaIndex's templates: nothing that comes again.
_QUESTIONS: Final = frozenset({"query_str", "question"})


class FilledMessages(list[ChatMessage]):
    """Messages made from a template, and the texts that were filled in.

    The model hands them to itself, so the borders between template and context, which the joined text has lost, are
    still known where the request is made.
    """

    def __init__(self, messages: Iterable[ChatMessage], values: Mapping[str, Any]) -> None:
        super().__init__(messages)
        self.filled = tuple(
            text
            for name, value in values.items()
            if name not in _QUESTIONS
            for text in (value if isinstance(value, list | tuple) else [value])
            if isinstance(text, str) and len(text) >= MIN_STRETCH_LEN
        )


def find_segments(
    messages: Sequence[ChatMessage], sent: Sequence[Mapping[str, Any]], scope: Scope, *, observe: bool
) -> list[Segment]:
    """Segments for a request.

    Args:
        messages: As LlamaIndex gave them.
        sent: The same in the backend's shape.
        scope: Whose they are.
        observe: Nodes that were seen count, now and before.
    """
    registry = REGISTRY if observe else None
    for segment in observed_segments(scope) if observe else ():
        REGISTRY.register(segment)
    declared = list(declared_segments(messages, scope))
    if isinstance(messages, FilledMessages) and messages.filled:
        # Documents in the texts, and chunks of the rest up to the end: here the question stands elsewhere.
        turns = [{"role": "user", "content": text} for text in (*messages.filled, "?")]
        declared += recover(turns, registry=registry, scope=scope)
    return recover(sent, declared, registry=registry, scope=scope)
