"""``HypicLLM``: the LlamaIndex model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
)
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.tools import BaseTool
from typing_extensions import override

from hypic_agents.backend import Backend, ChatRequest
from hypic_agents.integrations.llama_index.answers import (
    to_async_completions,
    to_async_stream,
    to_chat,
    to_completion,
    to_completions,
    to_stream,
)
from hypic_agents.integrations.llama_index.errors import shown_to_the_user
from hypic_agents.integrations.llama_index.fields import ModelFields
from hypic_agents.integrations.llama_index.hints import FilledMessages, find_segments
from hypic_agents.integrations.llama_index.messages import to_backend
from hypic_agents.integrations.llama_index.options import make_request
from hypic_agents.integrations.llama_index.tools import choose, selections, tool_specs
from hypic_agents.integrations.tool_choice import Choice


class HypicLLM(ModelFields):
    """A model that reuses every document, tool spec and trace of a prompt wherever it stands.

    ::

        from hypic_agents.integrations.llama_index import HypicLLM

        llm = HypicLLM(model="tiny")    # a directory, a hub name, or the small model that ships with the package
        response = llm.chat([ChatMessage("Hello")])
        response.raw["usage"]           # tokens, cached ones among them
        response.raw["hypic"]           # what was reused, segment by segment, and why not where it was not

    The model is loaded with the first call, once a process for all objects that name it. Reuse needs no change to
    prompts: nodes that are retrieved are recognised where they stand. It never changes a prompt's tokens.

    Answers in a given form (structured prediction, required tools) are held to it while they are written.

    Attributes:
        model: ``HYPIC_MODEL`` sets the default.
        max_tokens: Longest answer; None for up to 1024, or what the window leaves.
        timeout: Seconds a call may take; loading the model does not count.
        max_retries: For backends that reach over a network.
        policy: Reuse policy, by name and with changes, such as "exact" or "hypic:head_seam=16"; None for the engine's.
        tenant, groups: Whose documents these are; nothing is reused across scopes.
        observe: Recognise the nodes of retrievers and synthesizers.
        device, dtype: Of the embedded engine.
        engine_config: The whole configuration of the embedded engine; comes before ``device`` and ``dtype``. Like
            ``backend``, it is not part of the serialised model.
        backend: Answers instead of the embedded engine.
    """

    @classmethod
    def class_name(cls) -> str:
        return "HypicLLM"

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        call = self._call(messages, kwargs)
        return to_chat(call.backend.generate(call.request), call.model_name)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        call = await asyncio.to_thread(self._call, messages, kwargs)
        return to_chat(await call.backend.agenerate(call.request), call.model_name)

    # Streams are prepared at once, while the spans are open that the nodes were seen in.
    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        call = self._call(messages, kwargs)
        return to_stream(call.backend.stream(call.request), call.model_name)

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        call = await asyncio.to_thread(self._call, messages, kwargs)
        return to_async_stream(call.backend.astream(call.request), call.model_name)

    @llm_completion_callback()
    @override
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        call = self._call([ChatMessage(prompt)], kwargs)
        return to_completion(to_chat(call.backend.generate(call.request), call.model_name))

    @llm_completion_callback()
    @override
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        call = await asyncio.to_thread(self._call, [ChatMessage(prompt)], kwargs)
        return to_completion(to_chat(await call.backend.agenerate(call.request), call.model_name))

    @llm_completion_callback()
    @override
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        call = self._call([ChatMessage(prompt)], kwargs)
        return to_completions(to_stream(call.backend.stream(call.request), call.model_name))

    @llm_completion_callback()
    @override
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        call = await asyncio.to_thread(self._call, [ChatMessage(prompt)], kwargs)
        return to_async_completions(to_async_stream(call.backend.astream(call.request), call.model_name))

    @override
    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The calls in a response.

        Raises:
            MissingToolCall: There is none, and that is an error.
        """
        return selections(response, error_on_no_tool_call=error_on_no_tool_call)

    @override
    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        tool_choice: Choice = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        asked = ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg
        specs = tool_specs(tools)
        return {
            "messages": [*(chat_history or ()), *([] if asked is None else [asked])],
            "tools": specs,
            "tool_choice": choose(tools, specs, tool_choice, required=tool_required),
            "parallel_tool_calls": allow_parallel_tool_calls,
            **kwargs,
        }

    def _get_messages(self, prompt: BasePromptTemplate, **prompt_args: Any) -> list[ChatMessage]:
        return FilledMessages(super()._get_messages(prompt, **prompt_args), prompt_args)

    def predict(self, prompt: BasePromptTemplate, **prompt_args: Any) -> str:
        with shown_to_the_user():
            return super().predict(prompt, **prompt_args)

    async def apredict(self, prompt: BasePromptTemplate, **prompt_args: Any) -> str:
        with shown_to_the_user():
            return await super().apredict(prompt, **prompt_args)

    def predict_and_call(self, tools: Sequence[BaseTool], *args: Any, **kwargs: Any) -> AgentChatResponse:
        with shown_to_the_user():
            return super().predict_and_call(tools, *args, **kwargs)

    async def apredict_and_call(self, tools: Sequence[BaseTool], *args: Any, **kwargs: Any) -> AgentChatResponse:
        with shown_to_the_user():
            return await super().apredict_and_call(tools, *args, **kwargs)

    def _call(self, messages: Sequence[ChatMessage], given: Mapping[str, Any]) -> _Call:
        """What to ask of whom. May read files, so never on an event loop."""
        sent = to_backend(messages)
        segments = find_segments(messages, sent, self.scope, observe=self.observe)
        request = make_request(self, sent, segments, given)
        return _Call(self._backend(), request, self.metadata.model_name)


@dataclass(frozen=True, slots=True)
class _Call:
    backend: Backend
    request: ChatRequest
    model_name: str
