"""HTTPS with certificates of an authority of its own: trusted where it is named, and nowhere else."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hypic_agents.integrations.sglang import ServerUnavailable, SGLangBackend
from tests.integrations.sglang.certificates import Authority
from tests.integrations.sglang.loopback import Fault, Loopback
from tests.integrations.sglang.test_contract import WAYS, answer, ask

Serve = Callable[..., Loopback]
Connect = Callable[..., SGLangBackend]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["stock", "hypic"])
async def test_an_authority_that_is_named_is_trusted(
    serve: Serve, connect: Connect, authority: Authority, kind: str, way: str
) -> None:
    backend = connect(serve(kind, tls=authority.server()), verify=str(authority.file))
    assert (await answer(backend, way, ask())).text


def test_a_context_says_what_is_trusted(serve: Serve, connect: Connect, authority: Authority) -> None:
    server = serve(tls=authority.server())
    context = ssl.create_default_context(cafile=str(authority.file))
    for verify in (context, False):
        assert connect(server, verify=verify).generate(ask()).text


def test_others_are_refused_and_nothing_is_sent(
    serve: Serve, connect: Connect, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path)
    for served, options in (
        (authority.server(), {}),
        (authority.server(), {"verify": str(other.file)}),
        (authority.server("192.0.2.7"), {"verify": str(authority.file)}),
    ):
        server = serve(tls=served)
        with pytest.raises(ServerUnavailable, match=r"(?i)certificate"):
            connect(server, api_key="secret-key", **options).model_info()
        assert server.asked == []


def test_a_server_may_ask_who_calls(serve: Serve, connect: Connect, authority: Authority) -> None:
    server = serve(tls=authority.server(asks_clients=True))
    own: dict[str, Any] = {"verify": str(authority.file)}
    with pytest.raises(ServerUnavailable):
        connect(server, **own).model_info()
    assert server.asked == []
    assert connect(server, cert=authority.certificate("192.0.2.9"), **own).generate(ask()).text


def test_no_redirect_leaves_the_encryption(serve: Serve, connect: Connect, authority: Authority) -> None:
    server = serve(tls=authority.server())
    backend = connect(server, verify=str(authority.file))
    backend.model_info()
    plain = server.url.replace("https", "http")
    server.faults["/v1/chat/completions"].append(Fault(status=307, headers={"location": f"{plain}/elsewhere"}))
    with pytest.raises(Exception, match="redirects to another host, http:"):
        backend.generate(ask())
