"""What happens when servers, or the way to them, misbehave: one typed error, or another try that nobody notices."""

from __future__ import annotations

import gzip
import json
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hypic_agents.core import SamplingParams
from hypic_agents.errors import ContextOverflow, InvalidInput, RequestTimeout
from hypic_agents.integrations.sglang import (
    AccessDenied,
    InvalidReply,
    RequestRejected,
    ServerError,
    ServerUnavailable,
    SGLangBackend,
    UnsupportedServer,
)
from tests.integrations.sglang.loopback import Fault, Loopback
from tests.integrations.sglang.test_contract import ENDLESS, WAYS, answer, ask

Serve = Callable[..., Loopback]
Connect = Callable[..., SGLangBackend]

CHAT = "/v1/chat/completions"
OVERLOADED = Fault(status=429, headers={"retry-after": "0"}, body=b'{"message": "queue is full"}')
FAILED = Fault(status=500, body=b'{"error": {"message": "out of memory"}}')


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["stock", "hypic"])
@pytest.mark.parametrize(
    "fault",
    [OVERLOADED, FAILED, Fault(reset=True), Fault(status=502, body=b"<html>bad gateway</html>"), Fault(cut_after=0)],
    ids=["busy", "failed", "reset", "gateway", "cut"],
)
async def test_a_question_is_tried_again_as_often_as_it_says(
    serve: Serve, connect: Connect, way: str, kind: str, fault: Fault
) -> None:
    server = serve(kind)
    backend = connect(server, warm_missing=False)
    path = CHAT if kind == "stock" else "/generate"
    server.faults[path].append(fault)
    with pytest.raises(ServerError):
        await answer(backend, way, ask())
    server.faults[path] += [fault, fault]
    done = await answer(backend, way, ask(max_retries=2))
    assert done.text == backend.generate(ask()).text
    assert len(server.bodies(path)) == 5
    assert len({body["rid"] for body in server.bodies(path)}) == 5


@pytest.mark.parametrize("kind", ["stock", "hypic"])
@pytest.mark.parametrize("way", ["stream", "astream"])
@pytest.mark.parametrize("fault", [Fault(cut_after=2), Fault(garbage_after=2)], ids=["cut", "garbage"])
async def test_what_was_shown_is_never_shown_again(
    serve: Serve, connect: Connect, kind: str, way: str, fault: Fault
) -> None:
    server = serve(kind)
    backend = connect(server, warm_missing=False)
    path = CHAT if kind == "stock" else "/generate"
    server.faults[path].append(fault)
    with pytest.raises(InvalidReply):
        await answer(backend, way, ask(max_retries=3))
    assert len(server.bodies(path)) == 1
    server.wait_idle()
    assert server.aborted == [server.bodies(path)[0]["rid"]]


async def test_a_server_that_asks_for_patience_is_given_it(serve: Serve, connect: Connect) -> None:
    server = serve()
    backend = connect(server)
    backend.model_info()
    server.faults[CHAT].append(replace(OVERLOADED, headers={"retry-after": "1"}))
    with pytest.raises(ServerUnavailable, match="queue is full") as caught:
        backend.generate(ask(max_retries=1))  # longer than retry.max_s
    assert caught.value.retry_after_s == 1
    assert len(server.bodies(CHAT)) == 1


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (Fault(status=401, body=b'{"error": "Unauthorized"}'), AccessDenied, "api_key"),
        (Fault(status=400, body=b'{"message": "min_p must be in [0, 1]"}'), RequestRejected, "min_p"),
        (Fault(status=404, body=b'{"detail": "Not Found"}'), RequestRejected, "SGLang"),
        (Fault(status=200, body=b"[1, 2", headers={"content-type": "application/json"}), InvalidReply, "no JSON"),
        (Fault(status=200, body=b"null", headers={"content-type": "application/json"}), InvalidReply, "shape"),
        (
            Fault(status=200, body=b'{"choices": [3]}', headers={"content-type": "application/json"}),
            InvalidReply,
            "shape",
        ),
        (Fault(status=200, body=b"hello", headers={"content-type": "text/plain"}), InvalidReply, "shape"),
        (Fault(status=200, headers={"content-type": "application/json"}), InvalidReply, "shape"),
        (Fault(status=307, headers={"location": "http://203.0.113.5/steal"}), InvalidReply, "another host"),
        (Fault(status=302, headers={"location": "/elsewhere"}), InvalidReply, "body"),
        (Fault(status=307, headers={"location": CHAT}), None, ""),
    ],
    ids=["denied", "rejected", "missing", "broken", "null", "choices", "text", "empty", "host", "method", "same"],
)
def test_replies_of_other_kinds(
    serve: Serve, connect: Connect, fault: Fault, error: type[Exception] | None, message: str
) -> None:
    server = serve()
    backend = connect(server, api_key="secret-key")
    backend.model_info()
    server.faults[CHAT].append(fault)
    if error is None:
        assert backend.generate(ask()).text
        return
    with pytest.raises(error, match=message) as caught:
        backend.generate(ask())
    assert "secret-key" not in str(caught.value) + repr(backend)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), type(copy), vars(copy)) == (str(caught.value), type(caught.value), vars(caught.value))


def test_redirects_cannot_go_on_for_ever(serve: Serve, connect: Connect) -> None:
    server = serve()
    backend = connect(server)
    backend.model_info()
    server.faults[CHAT] += [Fault(status=308, headers={"location": CHAT})] * 9
    with pytest.raises(InvalidReply, match="chain"):
        backend.generate(ask())


@pytest.mark.parametrize("compressed", [False, True])
def test_replies_are_bounded(serve: Serve, connect: Connect, compressed: bool) -> None:
    server = serve()
    backend = connect(server, max_reply_bytes=100_000)
    backend.model_info()
    body = json.dumps({"choices": [], "pad": "x" * 200_000}).encode()
    headers = {"content-type": "application/json"}
    if compressed:
        body, headers = gzip.compress(body), {**headers, "content-encoding": "gzip"}
    server.faults[CHAT].append(Fault(status=200, body=body, headers=headers))
    with pytest.raises(InvalidReply, match="max_reply_bytes"):
        backend.generate(ask())
    stream = Fault(status=200, body=b"data: " + b"x" * 200_000, headers={"content-type": "text/event-stream"})
    server.faults[CHAT].append(stream)
    with pytest.raises(InvalidReply, match="max_reply_bytes"):
        list(backend.stream(ask()))


@pytest.mark.parametrize("way", WAYS)
async def test_a_slow_server_is_given_up(serve: Serve, connect: Connect, way: str) -> None:
    server = serve()
    backend = connect(server)
    backend.model_info()
    server.faults[CHAT].append(Fault(delay_s=1.0))
    before = time.monotonic()
    with pytest.raises(RequestTimeout):
        await answer(backend, way, ask(timeout_s=0.2, max_retries=5))
    assert time.monotonic() - before < 0.9
    assert server.aborted


def test_silence_is_bounded_without_a_timeout_too(serve: Serve, connect: Connect) -> None:
    server = serve()
    backend = connect(server, read_timeout_s=0.2)
    backend.model_info()
    server.faults[CHAT].append(Fault(delay_s=1.0))
    with pytest.raises(ServerUnavailable, match="in time"):
        backend.generate(ask())


def test_errors_inside_a_stream(serve: Serve, connect: Connect) -> None:
    server = serve()
    backend = connect(server)
    backend.model_info()
    headers = {"content-type": "text/event-stream"}
    for code, error in ((400, RequestRejected), (500, ServerUnavailable)):
        event = json.dumps({"error": {"message": "the words of the server", "code": code}})
        server.faults[CHAT].append(Fault(status=200, body=f"data: {event}\n\n".encode(), headers=headers))
        with pytest.raises(error, match="the words of the server"):
            list(backend.stream(ask()))


def test_an_aborted_answer_says_so(serve: Serve, connect: Connect) -> None:
    server = serve()
    backend = connect(server)
    chunks = backend.stream(ask(**ENDLESS))
    next(chunks)
    rid = server.bodies(CHAT)[-1]["rid"]
    server.abort(rid)
    done = list(chunks)[-1].completion
    assert done is None or done.finish_reason == "cancelled"


def test_a_window_that_only_the_server_knows(serve: Serve, connect: Connect) -> None:
    """Without a tokenizer the prompt's length is learned from the refusal."""
    server = serve(context_length=300)
    backend = connect(server, tokenizer=None)
    wide = SamplingParams(max_tokens=4000)
    with pytest.raises(ContextOverflow) as caught:
        backend.generate(ask(sampling=wide))
    assert caught.value.window == 300
    done = backend.generate(ask(sampling=wide, fit_window=True))
    sent = [body["max_completion_tokens"] for body in server.bodies(CHAT)]
    assert sent == [4000, 4000, 300 - done.usage.prompt_tokens - 1]


def test_servers_of_other_makes(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.faults["/server_info"].append(Fault(status=200, body=b"{}", headers={"content-type": "application/json"}))
    with pytest.raises(UnsupportedServer, match="no SGLang server"):
        connect(server).model_info()
    server.faults["/server_info"].append(Fault(status=404))
    server.faults["/get_server_info"].append(Fault(status=404))
    with pytest.raises(RequestRejected, match="SGLang"):
        connect(server).model_info()
    with pytest.raises(ServerUnavailable, match="cannot be reached"):
        connect("http://127.0.0.1:9").model_info()


def test_calls_that_change_nothing_are_repeated(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.faults["/server_info"] += [FAILED, OVERLOADED]
    assert connect(server).model_info().name == "tiny"
    server.faults["/server_info"] += [FAILED] * 3
    with pytest.raises(ServerUnavailable, match="out of memory"):
        connect(server).model_info()


@pytest.mark.parametrize("url", ["", "localhost:30000", "ftp://x", "http://", "http://user:key@host", "http://h?x=1"])
def test_bad_urls(connect: Connect, url: str) -> None:
    with pytest.raises(InvalidInput, match="base_url"):
        connect(url)


def test_keys_headers_and_paths(serve: Serve, connect: Connect) -> None:
    server = serve()
    backend = connect(f"{server.url}/v1/", api_key="k", headers={"x-team": "blue"})
    backend.model_info()
    sent: dict[str, Any] = {name.lower(): value for name, value in server.asked[0].headers.items()}
    assert (sent["authorization"], sent["x-team"]) == ("Bearer k", "blue")
    assert server.asked[0].path == "/server_info"
