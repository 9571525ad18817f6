"""A real HTTP server on loopback that speaks both dialects, with our own engine behind it.

It follows what SGLang 0.5.23 and the HYPIC build (on 0.5.14) publish: ``http_server.py``, ``openai/protocol.py`` and
``openai/serving_chat.py`` of github.com/sgl-project/sglang, docs.sglang.io ("Native APIs", "Sampling Parameters"), and
the README and ``examples/pic/quick_test_online.py`` of github.com/redai-infra/HYPIC. In short::

    GET  /server_info      {"model_path", "served_model_name", "version", "tool_call_parser", "pic_enable", ...}
    GET  /v1/models        {"object": "list", "data": [{"id", "max_model_len"}]}
    GET  /health           200, empty
    POST /tokenize         {"prompt"} or {"messages", "tools"}   ->  {"tokens", "count", "max_model_len"}
    POST /flush_cache      200, text; 400 while requests run
    POST /abort_request    {"rid", "abort_all"}                  ->  200, empty; the request ends as "abort"
    POST /generate         {"rid", "text" | "input_ids", "sampling_params": {"max_new_tokens", "temperature", "stop",
                            "json_schema", "regex", ...}, "stream"}
        ->  {"text", "output_ids", "meta_info": {"id", "finish_reason": {"type"}, "prompt_tokens", "completion_tokens",
             "cached_tokens"}}; streamed as ``data: {...}`` events that hold the text so far, then ``data: [DONE]``
    POST /v1/chat/completions   OpenAI's body, and "input_ids", "rid", "cache_salt", "regex", "return_token_ids"
        ->  {"id", "choices": [{"index", "message": {"role", "content", "reasoning_content", "tool_calls"},
             "finish_reason", "token_ids"}], "usage": {"prompt_tokens", "completion_tokens",
             "prompt_tokens_details": {"cached_tokens"}}}; streamed as "chat.completion.chunk" events
    errors                 {"object": "error", "message", "type", "code"}; in a stream ``data: {"error": {...}}``

A stock server reuses prefixes, in blocks, under the salt of the request. The HYPIC build splits its text at the
separator, tokenises each part alone, and reuses every part but the last.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from hypic_agents.core import Prompt, SamplingParams, Scope, Segment, SegmentSpan
from hypic_agents.errors import ContextOverflow, EngineClosed, InvalidInput
from hypic_agents.prompt.template import RenderedText
from hypic_agents.runtime.embedded import EmbeddedBackend
from hypic_agents.runtime.jobs import Event, Job, events
from hypic_agents.runtime.policy import parse_policy
from tests.integrations.sglang.replying import ChatReply, GenerateReply

BLOCK = 32
SEPARATOR = "<<PIC_SEP>>"


@dataclass(frozen=True)
class Fault:
    """What happens to one request instead of its answer, or to its answer.

    Attributes:
        status, headers, body: Sent instead of an answer.
        delay_s: Waited first.
        cut_after: The connection is cut behind this many events of a stream, or within a whole reply.
        garbage_after: An event that is no JSON follows that many.
        reset: The connection is closed before any reply.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay_s: float = 0.0
    cut_after: int | None = None
    garbage_after: int | None = None
    reset: bool = False


@dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    path: str
    body: Any
    headers: Mapping[str, str]
    port: int


class Loopback:
    """One server.

    Args:
        engine: Answers.
        kind: Which dialect it speaks.
        port: 0 for any that is free.
        tls: With it, the server speaks HTTPS.
        info: Changes to what ``/server_info`` says.
    """

    def __init__(
        self,
        engine: EmbeddedBackend,
        kind: Literal["stock", "hypic"],
        *,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        **info: Any,
    ) -> None:
        self.engine = engine
        self.kind = kind
        self.asked: list[Asked] = []
        self.aborted: list[str] = []
        self.faults: dict[str, deque[Fault]] = defaultdict(deque)
        self.jobs: dict[str, Job] = {}
        self.salts = {"default"}
        self.info: dict[str, Any] = {
            "model_path": "models/tiny",
            "served_model_name": "tiny",
            "version": "0.5.23",
            "context_length": None,
            "enable_cache_report": True,
            "tool_call_parser": "qwen25",
            "reasoning_parser": None,
            "grammar_backend": "xgrammar",
            "internal_states": [{}],
        }
        if kind == "hypic":
            self.info |= {
                "version": "0.5.14",
                "tool_call_parser": None,
                "pic_enable": True,
                "pic_mode": "transition_rope_recompute",
                "pic_separator_str": SEPARATOR,
            }
        self.info |= info
        self._http = _Http(("127.0.0.1", port), _handler(self))
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._http.daemon_threads = True  # so that closing does not wait for connections that are kept alive
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def bodies(self, path: str) -> list[Any]:
        """What was posted there, in order."""
        return [one.body for one in self.asked if one.path == path]

    def clear(self) -> None:
        """Forget what was asked."""
        self.asked.clear()
        self.aborted.clear()

    def flush(self) -> None:
        """Empty the store."""
        for salt in self.salts:
            self.engine.invalidate(tenant=salt)

    def wait_idle(self, timeout_s: float = 20.0) -> None:
        until = time.monotonic() + timeout_s
        while self.jobs:
            assert time.monotonic() < until, f"still running: {list(self.jobs)}"
            time.sleep(0.005)

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        self._http.cut_all()

    def prompt_of(self, path: str, body: Mapping[str, Any]) -> tuple[Prompt, str]:
        """The prompt of a body, and the policy it runs under."""
        self.salts.add(body.get("cache_salt") or "default")
        builder, tokenizer = self.engine.engine.builder, self.engine.engine.tokenizer
        if body.get("input_ids") is not None:
            return _blocks(tuple(body["input_ids"]), body.get("cache_salt") or ""), "prefix"
        if path == "/v1/chat/completions":
            tools = body.get("tools") or () if body.get("tool_choice") != "none" else ()
            built = builder.build_chat(body["messages"], tools=tools)
            return _blocks(built.token_ids, body.get("cache_salt") or ""), "prefix"
        assert self.kind == "hypic", "a stock server gets token ids here"
        ids: list[int] = []
        spans: list[SegmentSpan] = []
        for part in body["text"].split(SEPARATOR):
            own = tokenizer.encode(RenderedText(part, part, {})).ids
            if own:
                spans.append(SegmentSpan(Segment(part), own, len(ids), len(ids) + len(own), len(ids)))
                ids += own
        return Prompt(tuple(ids), tuple(spans[:-1])), "hypic:condition_on_system=false"

    @contextmanager
    def running(self, path: str, body: Mapping[str, Any], sampling: SamplingParams) -> Iterator[Iterator[Event]]:
        """The engine's events for a body; closed, and so cancelled, with the connection."""
        prompt, policy = self.prompt_of(path, body)
        window = self.info["context_length"] or self.engine.engine.model.window
        if len(prompt) + sampling.max_tokens >= window:
            raise ContextOverflow(len(prompt), sampling.max_tokens, window)
        driver = self.engine._running()
        job = Job(prompt, sampling, parse_policy(policy), bool(body.get("stream")))
        rid = str(body.get("rid"))
        self.jobs[rid] = job
        try:
            with closing(events(driver, job)) as news:
                yield news
        finally:
            self.jobs.pop(rid, None)

    def abort(self, rid: str) -> None:
        self.aborted.append(rid)
        job = self.jobs.get(rid)
        if job is not None:
            self.engine._running().cancel(job)
            job.sink(Event(error=EngineClosed("aborted")))


class _Http(ThreadingHTTPServer):
    def __init__(self, *arguments: Any) -> None:
        self.connections: set[Any] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        """As when a process ends: connections that wait for another request are closed too."""
        for request in list(self.connections):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)


def _blocks(ids: tuple[int, ...], salt: str) -> Prompt:
    scope = Scope(salt or "default")
    spans = [
        SegmentSpan(Segment(str(i), "system", scope=scope), ids[i : i + BLOCK], i, i + BLOCK, i)
        for i in range(0, len(ids) - BLOCK, BLOCK)
    ]
    return Prompt(ids, tuple(spans))


def _handler(server: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        owner = server

    return Handler


class _Handler(BaseHTTPRequestHandler):
    owner: Loopback
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._handle(None)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        self._handle(json.loads(raw) if raw else None)

    def _handle(self, body: Any) -> None:
        owner = self.owner
        owner.asked.append(Asked(self.path, body, dict(self.headers), owner.port))
        waiting = owner.faults[self.path]
        fault = waiting.popleft() if waiting else Fault()
        time.sleep(fault.delay_s)
        try:
            if fault.reset:
                self.close_connection = True
            elif fault.status:
                self._send(fault.status, fault.body, fault.headers)
            else:
                self._answer(body, fault)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self, body: Any, fault: Fault) -> None:
        owner = self.owner
        if self.path == "/server_info":
            self._json(200, owner.info)
        elif self.path == "/v1/models":
            window = owner.info["context_length"] or owner.engine.engine.model.window
            self._json(200, {"object": "list", "data": [{"id": "tiny", "max_model_len": window}]})
        elif self.path == "/health":
            self._send(200, b"")
        elif self.path == "/abort_request":
            owner.abort(body["rid"])
            self._send(200, b"")
        elif self.path == "/flush_cache":
            busy = bool(owner.jobs)
            if not busy:
                owner.flush()
            self._send(400 if busy else 200, b"Cache flushed.\n", {"content-type": "text/plain"})
        elif self.path == "/tokenize":
            self._json(200, _tokenized(owner.engine, body))
        elif self.path in ("/generate", "/v1/chat/completions"):
            self._infer(body, fault)
        else:
            self._json(404, {"detail": "Not Found"})

    def _infer(self, body: Any, fault: Fault) -> None:
        try:
            reply = GenerateReply(body) if self.path == "/generate" else ChatReply(body, self.owner.info)
            with self.owner.running(self.path, body, reply.sampling) as news:
                if body.get("stream"):
                    self._stream(reply.streamed(news), fault)
                else:
                    self._json(200, reply.whole(news), cut=fault.cut_after is not None)
        except ContextOverflow as error:
            total = error.prompt_len + error.max_new_tokens
            self._error(
                f"Requested token count exceeds the model's maximum context length of {error.window} tokens. You "
                f"requested a total of {total} tokens: {error.prompt_len} tokens from the input messages and "
                f"{error.max_new_tokens} tokens for the completion."
            )
        except InvalidInput as error:
            self._error(str(error))

    def _stream(self, replies: Iterator[Any], fault: Fault) -> None:
        for sent, reply in enumerate(replies):
            if not sent:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream; charset=utf-8")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
            if fault.cut_after is not None and sent >= fault.cut_after:
                self.close_connection = True
                return
            if fault.garbage_after is not None and sent >= fault.garbage_after:
                self._chunk(b"data: {not json\n\n")
            self._chunk(f"data: {json.dumps(reply)}\n\n".encode())
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _error(self, message: str) -> None:
        self._json(400, {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400})

    def _json(self, status: int, value: Any, *, cut: bool = False) -> None:
        data = json.dumps(value).encode()
        if cut:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return
        self._send(status, data, {"content-type": "application/json"})

    def _send(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _tokenized(backend: EmbeddedBackend, body: Mapping[str, Any]) -> dict[str, Any]:
    engine = backend.engine
    if "prompt" in body:
        ids = list(engine.tokenizer.encode_text(body["prompt"]))
    else:
        ids = list(engine.builder.build_chat(body["messages"], tools=body.get("tools") or ()).token_ids)
    return {"tokens": ids, "count": len(ids), "max_model_len": engine.model.window}
