"""Prompts out of parts: exact token ids, and where each reusable part stands in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypic_agents.core import Prompt, Scope, Segment, SegmentKind, SegmentSpan
from hypic_agents.errors import EmptyPrompt, InvalidMessages, VersionConflict
from hypic_agents.prompt.align import Known, Placed, place
from hypic_agents.prompt.canonical import canonical_tool
from hypic_agents.prompt.messages import SEPARATOR, Conversation, normalise
from hypic_agents.prompt.parts import system_segments, tool_segments, turn_segments
from hypic_agents.prompt.snap import snap
from hypic_agents.prompt.tokenizer import ChatTokenizer, Tokens
from hypic_agents.prompt.volatile import find_volatile

_DEFAULT_SCOPE = Scope()


class PromptBuilder:
    """Builds prompts for one model. Holds no state between calls; safe to share between threads.

    The prompt is rendered by the model's chat template and tokenised whole; segments are looked for afterwards, so
    they cannot change it.
    """

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer

    def build(
        self,
        *,
        system: str | Segment | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        documents: Sequence[str | Segment] = (),
        memory: Sequence[str | Segment] = (),
        messages: Sequence[Mapping[str, Any]] = (),
        question: str | None = None,
        scope: Scope = _DEFAULT_SCOPE,
    ) -> Prompt:
        """A prompt of a system text, tool specs, the conversation so far, memory entries, documents and a question.

        Memory, documents and the question, joined by blank lines, are the last user message; without a question they
        stand in front of the last user message of ``messages``. Parts that are ``None`` or blank are left out. Parts
        without a scope of their own get ``scope``.

        Raises:
            EmptyPrompt: Neither messages nor a question.
            InvalidMessages: A message, part or tool spec cannot be rendered.
            VersionConflict: Two versions of one source.
        """
        question = question if question and question.strip() else None
        if not messages and question is None:
            raise EmptyPrompt("a prompt needs a question or messages")
        head = _segments([system], "system", scope)
        body = [*_segments(memory, "memory", scope), *_segments(documents, "document", scope)]
        _check_versions([*head, *body])
        front = [{"role": "system", "content": segment.text} for segment in head]
        chat = [*front, *_with_body(messages, [segment.text for segment in body], question)]
        # A system text given as plain text may be cut where it states the time; a Segment is the caller's own unit.
        declared = [*(head if isinstance(system, Segment) else ()), *body]
        return self._prompt(normalise(chat, first_index=-len(front)), tools, declared, scope)

    def build_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        segments: Sequence[Segment] = (),
        scope: Scope = _DEFAULT_SCOPE,
    ) -> Prompt:
        """A prompt of a ready chat. ``segments`` are texts that may stand in it verbatim; they need not.

        Raises:
            EmptyPrompt: No messages.
            InvalidMessages: A message or tool spec cannot be rendered.
            VersionConflict: Two versions of one source were found in the chat.
        """
        if not messages:
            raise EmptyPrompt("a prompt needs at least one message")
        return self._prompt(normalise(messages), tools, _segments(segments, "document", scope), scope)

    def _prompt(
        self, chat: Conversation, tools: Sequence[Mapping[str, Any]], declared: Sequence[Segment], scope: Scope
    ) -> Prompt:
        specs = [canonical_tool(tool) for tool in tools]
        rendered = self._tokenizer.render(chat.messages, specs)
        knowns = [
            *map(Known, declared),
            *tool_segments(specs, rendered.text, scope),
            *system_segments(chat.system_parts, scope),
            *turn_segments(chat.turn_parts, scope),
        ]
        placed = place(rendered.text, knowns)
        _check_versions(item.segment for item in placed)
        tokens = self._tokenizer.encode(rendered)
        if not tokens.ids:
            raise EmptyPrompt("the chat template rendered these messages to nothing")
        volatile = find_volatile(chat.system_parts, rendered.text, placed, tokens)
        return Prompt(tokens.ids, self._spans(placed, tokens), rendered.text, tuple(volatile), scope)

    def _spans(self, placed: Iterable[Placed], tokens: Tokens) -> tuple[SegmentSpan, ...]:
        spans: list[SegmentSpan] = []
        for item in placed:
            standalone = self._tokenizer.encode_text(item.segment.text)
            span = snap(item, standalone, tokens, not_before=spans[-1].end if spans else 0)
            if span is not None:
                spans.append(span)
        return tuple(spans)


def _segments(parts: Iterable[str | Segment | None], kind: SegmentKind, scope: Scope) -> list[Segment]:
    segments = []
    for index, part in enumerate(parts):
        if part is None:
            continue
        if not isinstance(part, str | Segment):
            raise InvalidMessages(f"{kind} {index} must be text or a Segment, not {type(part).__name__}")
        segment = Segment(part, kind) if isinstance(part, str) else part
        if segment.text.strip():
            segments.append(replace(segment, scope=scope) if segment.scope == _DEFAULT_SCOPE else segment)
    return segments


def _with_body(
    messages: Sequence[Mapping[str, Any]], body: Sequence[str], question: str | None
) -> list[Mapping[str, Any]]:
    chat = list(messages)
    if question is not None:
        return [*chat, {"role": "user", "content": SEPARATOR.join([*body, question])}]
    if body:
        last = max((i for i, message in enumerate(chat) if _is_user(message)), default=len(chat))
        chat.insert(last, {"role": "user", "content": SEPARATOR.join(body)})
    return chat


def _is_user(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") in {"user", "human"}


def _check_versions(segments: Iterable[Segment]) -> None:
    versions: dict[str, str] = {}
    for segment in segments:
        if segment.source_id and segment.version:
            known = versions.setdefault(segment.source_id, segment.version)
            if known != segment.version:
                raise VersionConflict(
                    f"source {segment.source_id!r} stands in this prompt in the versions {known!r} and "
                    f"{segment.version!r}; drop the older one"
                )
