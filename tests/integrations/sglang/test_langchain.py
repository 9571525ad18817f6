"""LangChain's own integration tests of a chat model, unmodified, on servers of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.exceptions import ContextOverflowError, ModelAPIError, ModelInvalidRequestError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from hypic_agents.integrations.langchain import ChatHypic
from hypic_agents.integrations.sglang import Connection, SGLangBackend
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.embedded import EmbeddedBackend
from tests.integrations.sglang.loopback import Fault, Loopback
from tests.integrations.standard import ChatHypicStandard

DIRECT = Connection(trust_env=False)
_REMOTE: dict[str, tuple[Loopback, SGLangBackend]] = {}


@pytest.fixture(scope="module", autouse=True)
def _remotes(embedded: EmbeddedBackend, tokenizer: ChatTokenizer) -> Iterator[None]:
    for kind in ("stock", "hypic"):
        server = Loopback(embedded, kind)  # type: ignore[arg-type]
        _REMOTE[kind] = server, SGLangBackend(server.url, tokenizer=tokenizer, connection=DIRECT)
    yield
    for server, backend in _REMOTE.values():
        backend.close()
        server.flush()
        server.close()
    _REMOTE.clear()


class _Remote(ChatHypicStandard):
    kind = ""

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"backend": _REMOTE[self.kind][1], "max_tokens": 200}

    @property
    def supports_model_override(self) -> bool:
        # A server serves its own model alone.
        return False

    @property
    def supported_usage_metadata_details(self) -> Any:
        details = ["cache_read_input"]
        return {"invoke": details, "stream": details}


class TestStock(_Remote):
    kind = "stock"


_COPIED = "a HYPIC build tokenises parts apart, and hypic-tiny then writes another number into the call"


class TestHypicBuild(_Remote):
    kind = "hypic"

    @pytest.mark.xfail(strict=True, reason=_COPIED)
    def test_tool_calling(self, model: BaseChatModel) -> None:
        super().test_tool_calling(model)

    @pytest.mark.xfail(strict=True, reason=_COPIED)
    async def test_tool_calling_async(self, model: BaseChatModel) -> None:
        await super().test_tool_calling_async(model)


DOCUMENTS = [
    Document(f"Notes {i}: the keeper of gate {i} is called Velmo, and it opens at {i} in the morning. " * 3, id=str(i))
    for i in range(3)
]


def _asked(order: list[Document]) -> list[HumanMessage]:
    blocks: list[Any] = [{"type": "document", "title": one.id, "text": one.page_content} for one in order]
    blocks = [{"type": "text", "text": one["text"] + "\n\n", "cache_control": {"type": "ephemeral"}} for one in blocks]
    return [HumanMessage([*blocks, {"type": "text", "text": "Which gate opens first?"}])]


def test_documents_that_moved_are_reported_as_hits() -> None:
    model = ChatHypic(backend=_REMOTE["hypic"][1], max_tokens=20)
    model.invoke(_asked(DOCUMENTS))
    answer = model.invoke(_asked(DOCUMENTS[::-1]))
    report = answer.response_metadata["hypic"]
    assert [one["state"] for one in report["segments"]] == ["hit"] * 3
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_token_details"]["cache_read"] == report["reused_tokens"] > 100


@pytest.mark.parametrize(
    ("fault", "error", "retryable"),
    [
        (Fault(status=500, body=b"failed"), ModelAPIError, True),
        (Fault(status=400, body=b'{"message": "no"}'), ModelInvalidRequestError, False),
        (Fault(status=401), ModelInvalidRequestError, False),
        (
            Fault(status=400, body=b"The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
            ContextOverflowError,
            False,
        ),
    ],
    ids=["failed", "rejected", "denied", "overflow"],
)
def test_errors_are_langchains_too(fault: Fault, error: type[Exception], retryable: bool) -> None:
    server, backend = _REMOTE["stock"]
    server.faults["/v1/chat/completions"].append(fault)
    with pytest.raises(error) as caught:
        ChatHypic(backend=backend).invoke("Hello")
    assert getattr(caught.value, "is_retryable", retryable) is retryable


def test_retries_are_the_models_own() -> None:
    server, backend = _REMOTE["stock"]
    server.faults["/v1/chat/completions"] += [Fault(status=500)] * 2
    assert ChatHypic(backend=backend, max_retries=2, max_tokens=5).invoke("Hello").content
