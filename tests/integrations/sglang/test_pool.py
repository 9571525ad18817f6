"""Several servers: alike for all clients, well when one is not, and whole again when it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from hypic_agents.core import Segment
from hypic_agents.integrations.sglang import ServerError, ServerUnavailable, SGLangBackend, UnsupportedServer
from hypic_agents.runtime.embedded import EmbeddedBackend
from tests.integrations.sglang.loopback import Fault, Loopback
from tests.integrations.sglang.test_contract import ENDLESS, NOTES, ask

Serve = Callable[..., Loopback]
Connect = Callable[..., SGLangBackend]

PATHS = {"stock": "/v1/chat/completions", "hypic": "/generate"}
BUSY = Fault(status=503, body=b"starting")


def answered_by(backend: SGLangBackend, question: str = "Who keeps gate 2?", notes: list[Segment] = NOTES) -> str:
    return str(backend.generate(ask(question, notes)).metadata["server"])


@pytest.mark.parametrize("kind", PATHS)
def test_prompts_with_the_same_segments_go_to_one_server(serve: Serve, connect: Connect, kind: str) -> None:
    servers = [serve(kind) for _ in range(3)]
    homes = {answered_by(connect(*order), f"Question {i}?") for i, order in enumerate([servers, servers[::-1]])}
    assert len(homes) == 1
    if kind == "hypic":
        assert answered_by(connect(*servers), notes=NOTES[::-1]) in homes


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("fault", [BUSY, Fault(status=429, body=b"full"), Fault(reset=True)], ids=["503", "429", "cut"])
def test_another_server_takes_over(serve: Serve, connect: Connect, kind: str, fault: Fault) -> None:
    servers = [serve(kind) for _ in range(2)]
    backend = connect(*servers, warm_missing=False)
    home = next(one for one in servers if one.url == answered_by(backend))
    home.faults[PATHS[kind]].append(fault)
    # A connection that was cut may have cost a computation, so it counts as a try.
    done = backend.generate(ask("And gate 1?", max_retries=1 if fault.reset else 0))
    assert done.metadata["server"] != home.url


def test_a_server_that_vanished_is_left_alone_and_comes_back(
    embedded: EmbeddedBackend, serve: Serve, connect: Connect
) -> None:
    servers = [serve("hypic") for _ in range(2)]
    backend = connect(*servers)
    home = next(one for one in servers if one.url == answered_by(backend))
    port, url = home.port, home.url
    home.close()
    assert answered_by(backend) != url
    again = Loopback(embedded, "hypic", port=port)
    try:
        until = time.monotonic() + 20
        while answered_by(backend) != url:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert [one.path for one in again.asked].count("/health") >= 1
        assert len(again.bodies("/generate")) > 1  # its cache went with its process, so segments are sent again
    finally:
        again.close()


def test_one_of_several_may_be_away_from_the_beginning(serve: Serve, connect: Connect) -> None:
    server = serve()
    backend = connect("http://127.0.0.1:9", server)
    assert answered_by(backend) == server.url
    assert backend.model_info().name == "tiny"


def test_the_last_error_is_told_when_all_fail(serve: Serve, connect: Connect) -> None:
    servers = [serve() for _ in range(2)]
    backend = connect(*servers)
    backend.model_info()
    for server in servers:
        server.faults[PATHS["stock"]] += [BUSY] * 2
    with pytest.raises(ServerUnavailable, match="503"):
        backend.generate(ask())
    assert sum(len(server.bodies(PATHS["stock"])) for server in servers) == 2


@pytest.mark.parametrize(
    "infos", [({}, {"served_model_name": "other"}), ({}, {"pic_enable": True, "pic_mode": "transition_rope_recompute"})]
)
def test_servers_must_agree(serve: Serve, connect: Connect, infos: tuple[dict[str, object], ...]) -> None:
    with pytest.raises(UnsupportedServer, match="differ"):
        connect(*(serve(**info) for info in infos)).model_info()


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"pic_mode": "addition"}, "--pic-mode"),
        ({"pic_mode": "transition_rope"}, "allow_any_mode"),
        ({"pic_separator_str": " "}, "separator"),
        ({"pic_mode": None}, "addition"),
    ],
)
def test_builds_in_bad_modes_are_refused(serve: Serve, connect: Connect, info: dict[str, object], message: str) -> None:
    server = serve("hypic", **info)
    with pytest.raises(UnsupportedServer, match=message):
        connect(server).model_info()
    if info.get("pic_mode") == "transition_rope":
        report = connect(server, allow_any_mode=True).generate(ask()).report
        assert report.policy == "transition_rope"


def test_a_build_needs_the_tokenizer(serve: Serve, connect: Connect) -> None:
    with pytest.raises(UnsupportedServer, match="tokenizer="):
        connect(serve("hypic"), tokenizer=None).generate(ask())


def test_missing_segments_are_sent_first_the_longest_first_and_once(serve: Serve, connect: Connect) -> None:
    server = serve("hypic")
    backend = connect(server)
    notes = [Segment(f"Note {i}: " + f"gate {i} opens in the morning. " * (3 + 2 * i)) for i in range(4)]
    done = backend.generate(ask(notes=notes))
    *ahead, prompt = (body["text"] for body in server.bodies("/generate"))
    assert len(ahead) == len(set(ahead)) >= 4
    assert all(text.split("<<PIC_SEP>>")[0] in prompt.split("<<PIC_SEP>>")[:-1] for text in ahead)
    assert done.report.cold_tokens > 0
    server.clear()
    again = backend.generate(ask("Another?", notes[::-1]))
    assert len(server.bodies("/generate")) == 1
    assert again.report.cold_tokens == 0
    assert again.report.reused_tokens >= 100


def test_segments_are_sent_in_parallel_and_by_one_request_only(serve: Serve, connect: Connect) -> None:
    server = serve("hypic")
    backend = connect(server)
    backend.model_info()
    server.faults["/generate"] += [Fault(delay_s=0.5)] * 4  # the four parts of the first prompt
    gate = threading.Barrier(2)

    def go(question: str) -> float:
        gate.wait()
        before = time.monotonic()
        backend.generate(ask(question))
        return time.monotonic() - before

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(go, ["Who keeps gate 1?", "Who keeps gate 3?"]))
    ahead = [
        body["text"]
        for body in server.bodies("/generate")
        if "max_new_tokens" in body["sampling_params"] and body["sampling_params"]["max_new_tokens"] == 1
    ]
    assert len(ahead) == len(set(ahead))


def test_a_failure_to_send_ahead_is_no_failure(serve: Serve, connect: Connect) -> None:
    server = serve("hypic")
    backend = connect(server)
    backend.model_info()
    server.faults["/generate"] += [Fault(status=400, body=b'{"message": "no"}')] * 4
    assert backend.generate(ask()).text
    assert backend.generate(ask()).report.cold_tokens >= 0


def test_a_server_that_dropped_its_cache_is_sent_segments_again(serve: Serve, connect: Connect) -> None:
    server = serve("hypic")
    backend = connect(server)
    backend.generate(ask())
    server.flush()
    first = backend.generate(ask()).report
    server.clear()
    backend.generate(ask())
    assert first.reused_tokens == 0
    assert len(server.bodies("/generate")) > 1


def test_emptying_waits_for_a_server_at_work(serve: Serve, connect: Connect) -> None:
    server = serve("hypic")
    backend = connect(server)
    chunks = backend.stream(ask(**ENDLESS))
    next(chunks)
    with pytest.raises(ServerError, match="while it is at work"):
        backend.invalidate(source_id="notes-2")
    chunks.close()
    server.wait_idle()
    assert backend.invalidate(source_id="notes-2") == 1
