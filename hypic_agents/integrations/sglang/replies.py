"""What servers answer, piece by piece, in one shape.

``/v1/chat/completions`` answers ``{"choices": [{"message": {...}, "finish_reason"}], "usage": {"prompt_tokens",
"completion_tokens", "prompt_tokens_details": {"cached_tokens"}}}`` and streams ``choices[0].delta``, with the usage in
a last event that has no choice. ``/generate`` answers ``{"text", "output_ids", "meta_info": {"prompt_tokens",
"completion_tokens", "cached_tokens", "finish_reason": {"type"}}}`` and streams the same with the text so far, or only
what is new (``--incremental-streaming-output``). Sources: as in ``payload.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypic_agents.calls import ToolCallDelta
from hypic_agents.completion import FinishReason
from hypic_agents.integrations.sglang.errors import InvalidReply

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "content_filter": "stop",
    "length": "length",
    "abort": "cancelled",
}
_SHOWN_LEN = 200


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens, as the server counts them; ``cached`` is None where it does not say."""

    prompt: int
    completion: int
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event, or a whole reply, adds."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallDelta, ...] = ()
    token_ids: tuple[int, ...] = ()
    finish: FinishReason | None = None
    counts: Counts | None = None


class ChatReader:
    """Reads the chat endpoint; holds nothing between events."""

    def read(self, event: Any) -> Piece:
        """Of a whole reply, or one event of a stream.

        Raises:
            InvalidReply: It does not have the documented shape.
        """
        try:
            return self._read(event)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise _unlike("/v1/chat/completions", event) from error

    def _read(self, event: Mapping[str, Any]) -> Piece:
        counts = _chat_counts(event["usage"]) if event.get("usage") else None
        if not event["choices"]:
            return Piece(counts=counts)
        choice = event["choices"][0]
        said = choice["delta"] if "delta" in choice else choice["message"]
        whole = "delta" not in choice
        calls = tuple(
            ToolCallDelta(
                int(index if call.get("index") is None else call["index"]),
                str(call["function"].get("arguments") or ""),
                str(call["function"].get("name") or ""),
                str(call.get("id") or "") if whole or call["function"].get("name") else "",
            )
            for index, call in enumerate(said.get("tool_calls") or ())
        )
        return Piece(
            text=str(said.get("content") or ""),
            reasoning=str(said.get("reasoning_content") or ""),
            calls=calls,
            token_ids=tuple(map(int, choice.get("token_ids") or ())),
            finish=_reason(choice.get("finish_reason")),
            counts=counts,
        )


class GenerateReader:
    """Reads ``/generate``.

    Args:
        incremental: Events hold what is new, not all so far.
    """

    def __init__(self, *, incremental: bool) -> None:
        self._incremental = incremental
        self._text = ""
        self._num_ids = 0

    def read(self, event: Any) -> Piece:
        """Of a whole reply, or one event of a stream.

        Raises:
            InvalidReply: It does not have the documented shape.
        """
        try:
            return self._read(event)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _unlike("/generate", event) from error

    def _read(self, event: Mapping[str, Any]) -> Piece:
        meta, text = event["meta_info"], str(event["text"])
        ids = tuple(map(int, event.get("output_ids") or ()))
        if not self._incremental:
            if not text.startswith(self._text):
                raise ValueError(text)
            text, self._text = text[len(self._text) :], text
            ids, self._num_ids = ids[self._num_ids :], len(ids)
        reason = meta.get("finish_reason")
        counts = Counts(int(meta["prompt_tokens"]), int(meta["completion_tokens"]), _cached(meta))
        return Piece(text, token_ids=ids, finish=_reason(reason["type"] if reason else None), counts=counts)


def _chat_counts(usage: Mapping[str, Any]) -> Counts:
    return Counts(
        int(usage["prompt_tokens"]),
        int(usage.get("completion_tokens") or 0),
        _cached(usage.get("prompt_tokens_details") or {}),
    )


def _cached(details: Mapping[str, Any]) -> int | None:
    value = details.get("cached_tokens")
    return None if value is None else max(0, int(value))


def _reason(name: Any) -> FinishReason | None:
    return None if name is None else _REASONS.get(str(name), "stop")


def _unlike(path: str, event: Any) -> InvalidReply:
    return InvalidReply(f"a reply of {path} does not have the documented shape: {str(event)[:_SHOWN_LEN]}")
