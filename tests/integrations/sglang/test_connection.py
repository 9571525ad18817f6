"""How servers are reached, and that nothing is left behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from hypic_agents.errors import InvalidInput
from hypic_agents.integrations.sglang import Connection, SGLangBackend
from hypic_agents.prompt import ChatTokenizer
from tests.integrations.sglang.loopback import Loopback
from tests.integrations.sglang.test_contract import ENDLESS, ask


@pytest.mark.parametrize("name", ["connect_timeout_s", "read_timeout_s", "max_reply_bytes", "max_connections"])
def test_bounds_are_above_0(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        Connection(**{name: 0})


@pytest.mark.parametrize("connection", [Connection(verify="/nowhere.pem"), Connection(cert="/nowhere.pem")])
def test_certificates_that_cannot_be_read(connection: Connection) -> None:
    backend = SGLangBackend("https://127.0.0.1:9", connection=connection)
    with pytest.raises(InvalidInput, match="nowhere"):
        backend.model_info()
    backend.close()


def test_keys_that_cannot_be_sent_are_not_told() -> None:
    backend = SGLangBackend("http://127.0.0.1:9", api_key="geheim-\u20ac")
    with pytest.raises(InvalidInput, match="ASCII") as caught:
        backend.model_info()
    assert "geheim" not in str(caught.value) + repr(backend)
    backend.close()


# gc.collect() here also meets event loops that frameworks left behind in the tests before; ours is watched below.
@pytest.mark.filterwarnings("ignore:.*(BaseEventLoop|socket):pytest.PytestUnraisableExceptionWarning")
def test_a_backend_that_is_dropped_ends_its_thread_and_its_requests(
    serve: Callable[..., Loopback], tokenizer: ChatTokenizer
) -> None:
    server = serve()
    others = set(threading.enumerate())
    backend = SGLangBackend(server.url, tokenizer=tokenizer, connection=Connection(trust_env=False))
    chunks = backend.stream(ask(**ENDLESS))
    next(chunks)
    del backend, chunks
    gc.collect()
    server.wait_idle()
    until = time.monotonic() + 20
    while any(thread.name == "hypic sglang" for thread in set(threading.enumerate()) - others):
        assert time.monotonic() < until
        gc.collect()  # a task that was cancelled may hold it in a cycle
        time.sleep(0.01)


def test_importing_it_does_not_import_torch() -> None:
    code = "import sys, hypic_agents.integrations.sglang; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
