"""How the two endpoints of ``loopback.py`` read a body and write the engine's events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hypic_agents.backend import ChatRequest, grammar_of
from hypic_agents.core import Grammar, SamplingParams
from hypic_agents.errors import HypicError, InvalidInput
from hypic_agents.prompt.answer import AnswerReader
from hypic_agents.runtime.jobs import Event


class GenerateReply:
    """``/generate``."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        params = body["sampling_params"]
        grammar = Grammar("json_schema", params["json_schema"]) if params.get("json_schema") else None
        if params.get("regex"):
            grammar = Grammar("regex", params["regex"])
        self._rid = body.get("rid")
        self.sampling = SamplingParams(
            max_tokens=params.get("max_new_tokens", 128),
            temperature=params.get("temperature", 1.0),
            top_p=params.get("top_p", 1.0),
            stop=tuple(params.get("stop") or ()),
            seed=params.get("sampling_seed"),
            grammar=grammar,
        )

    def whole(self, news: Iterator[Event]) -> Any:
        return list(self.streamed(news))[-1]

    def streamed(self, news: Iterator[Event]) -> Iterator[Any]:
        text, ids = "", ()
        for event in _until_aborted(news):
            text, ids = text + event.text, ids + event.token_ids
            done = event.completion
            meta: dict[str, Any] = {"id": self._rid, "finish_reason": None, "prompt_tokens": 0, "cached_tokens": 0}
            meta["completion_tokens"] = len(ids)
            if done is not None:
                text, ids = done.text, done.token_ids
                meta["finish_reason"] = {"type": _finish(event)}
                meta["prompt_tokens"] = done.usage.prompt_tokens
                meta["cached_tokens"] = done.report.reused_tokens
            elif event.error is not None:
                meta["finish_reason"] = {"type": "abort", "message": "Aborted"}
            yield {"text": text, "output_ids": list(ids), "meta_info": meta}


class ChatReply:
    """``/v1/chat/completions``."""

    def __init__(self, body: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        self._id = body.get("rid") or "chatcmpl"
        choice = body.get("tool_choice") or "auto"
        name = choice["function"]["name"] if isinstance(choice, dict) else choice
        tools = body.get("tools") or ()
        # SGLang drops the constraint of tool calls where the answer has a form of its own.
        tools_held = () if body.get("response_format") or name == "auto" else tools
        held = ChatRequest(
            body["messages"],
            tools=tools_held,
            tool_choice=name if tools_held else "auto",
            parallel_tool_calls=body.get("parallel_tool_calls", True),
            response_format=body.get("response_format"),
        )
        grammar = Grammar("regex", body["regex"]) if body.get("regex") else grammar_of(held)
        self._reader = AnswerReader(tools if info["tool_call_parser"] and not body.get("response_format") else ())
        self._parses = bool(info["tool_call_parser"])
        self._cache_report = info["enable_cache_report"]
        self.sampling = SamplingParams(
            max_tokens=body.get("max_completion_tokens") or body.get("max_tokens") or 128,
            temperature=body.get("temperature", 1.0),
            top_p=body.get("top_p", 1.0),
            stop=tuple(body.get("stop") or ()),
            seed=body.get("seed"),
            grammar=grammar,
        )

    def whole(self, news: Iterator[Event]) -> Any:
        event = list(_until_aborted(news))[-1]
        done = event.completion
        if done is None:
            return self._reply({"message": {"role": "assistant", "content": ""}, "finish_reason": "abort"}, 0, 0, 0)
        self._reader.push(done.text)
        self._reader.finish()
        calls = [
            {"id": c.id, "index": i, "type": "function", "function": {"name": c.name, "arguments": _text(c.arguments)}}
            for i, c in enumerate(self._reader.tool_calls)
        ]
        message = {
            "role": "assistant",
            "content": self._reader.text or (None if calls else ""),
            "reasoning_content": None,
            "tool_calls": calls or None,
        }
        reason = "tool_calls" if calls and done.finish_reason == "stop" else done.finish_reason
        choice = {"message": message, "finish_reason": reason, "token_ids": list(done.token_ids)}
        return self._reply(choice, done.usage.prompt_tokens, len(done.token_ids), done.report.reused_tokens)

    def streamed(self, news: Iterator[Event]) -> Iterator[Any]:
        yield self._chunk({"role": "assistant", "content": ""})
        called = False
        for event in _until_aborted(news):
            shown = [self._reader.push(event.text)]
            if event.last:
                shown.append(self._reader.finish())
            for one in filter(None, shown):
                if one.text:
                    yield self._chunk({"content": one.text})
                for call in one.tool_calls:
                    called = True
                    function = {"name": call.name or None, "arguments": call.arguments}
                    yield self._chunk(
                        {
                            "tool_calls": [
                                {"id": call.id or None, "index": call.index, "type": "function", "function": function}
                            ]
                        }
                    )
            done = event.completion
            if done is not None:
                reason = "tool_calls" if called and done.finish_reason == "stop" else done.finish_reason
                yield self._chunk({}, reason)
                usage = self._usage(done.usage.prompt_tokens, len(done.token_ids), done.report.reused_tokens)
                yield {"id": self._id, "object": "chat.completion.chunk", "choices": [], "usage": usage}
            elif event.error is not None:
                yield self._chunk({}, "abort")
                usage = self._usage(0, 0, 0)
                yield {"id": self._id, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> Any:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": self._id, "object": "chat.completion.chunk", "model": "tiny", "choices": [choice]}

    def _reply(self, choice: dict[str, Any], prompt: int, completion: int, cached: int) -> Any:
        usage = self._usage(prompt, completion, cached)
        return {"id": self._id, "object": "chat.completion", "choices": [{"index": 0, **choice}], "usage": usage}

    def _usage(self, prompt: int, completion: int, cached: int) -> dict[str, Any]:
        details = {"cached_tokens": cached} if self._cache_report else None
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": details,
        }


def _until_aborted(news: Iterator[Event]) -> Iterator[Event]:
    """The engine's events; an abort is the last one, with its error."""
    try:
        yield from news
    except InvalidInput:
        raise
    except HypicError as error:
        yield Event(error=error)


def _text(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _finish(event: Event) -> str:
    assert event.completion is not None
    return event.completion.finish_reason
