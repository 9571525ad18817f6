"""What LangChain's integration tests are told of ``ChatHypic``, wherever its backend runs."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_tests.integration_tests import ChatModelIntegrationTests

from hypic_agents.integrations.langchain import ChatHypic

RULES = SystemMessage("You answer questions about the harbour. " + "Every ship is named in the list of berths. " * 8)
QUESTION = HumanMessage("Which ship lies at berth 4?")


class ChatHypicStandard(ChatModelIntegrationTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatHypic

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        model = ChatHypic(**self.chat_model_params)
        model.invoke([RULES, QUESTION])
        return answer(model, [RULES, QUESTION], stream=stream)

    @pytest.mark.xfail(strict=True, reason="hypic-tiny makes the right call several times over")
    def test_agent_loop(self, model: BaseChatModel) -> None:
        super().test_agent_loop(model)

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
