"""LangChain's own integration tests of a chat model, unmodified, on the embedded engine."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_tests.integration_tests import ChatModelIntegrationTests

from hypic_agents.integrations.langchain import ChatHypic

RULES = SystemMessage("You answer questions about the harbour. " + "Every ship is named in the list of berths. " * 8)


# test_stream_time times only what it recorded over a network; here it runs, and records and times nothing.
@pytest.mark.filterwarnings("ignore:Benchmark fixture was not used")
class TestChatHypicIntegration(ChatModelIntegrationTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatHypic

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "tiny", "max_tokens": 200}

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "random:qwen3_5:2m"

    @property
    def enable_vcr_tests(self) -> bool:
        # Nothing is sent over a network, so there is nothing to record.
        return True

    @property
    def supported_usage_metadata_details(self) -> Any:
        details = ["cache_read_input", "cache_creation_input"]
        return {"invoke": details, "stream": details}

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        messages = [RULES, HumanMessage("Which ship lies at berth 4?")]
        model = ChatHypic(**self.chat_model_params)
        model.invoke(messages)
        return answer(model, messages, stream=stream)

    def invoke_with_cache_creation_input(self, *, stream: bool = False) -> AIMessage:
        messages = [SystemMessage(f"{RULES.text} {stream}"), HumanMessage("Which ship lies at berth 4?")]
        return answer(ChatHypic(**self.chat_model_params), messages, stream=stream)

    @pytest.mark.xfail(strict=True, reason="hypic-tiny makes the right call four times over")
    def test_agent_loop(self, model: BaseChatModel) -> None:
        super().test_agent_loop(model)

    @pytest.mark.xfail(strict=True, reason="hypic-tiny fills the argument with an empty text")
    def test_bind_runnables_as_tools(self, model: BaseChatModel) -> None:
        super().test_bind_runnables_as_tools(model)

    @pytest.mark.xfail(strict=True, reason="hypic-tiny was trained on Latin letters and does not copy Chinese ones")
    def test_unicode_tool_call_integration(self, model: BaseChatModel, **options: Any) -> None:
        super().test_unicode_tool_call_integration(model, **options)


def answer(model: ChatHypic, messages: list[Any], *, stream: bool) -> AIMessage:
    if not stream:
        return model.invoke(messages)
    full: AIMessageChunk | None = None
    for chunk in model.stream(messages):
        full = chunk if full is None else full + chunk  # type: ignore[assignment]
    assert full is not None
    return full
