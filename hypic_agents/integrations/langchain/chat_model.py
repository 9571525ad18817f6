"""``ChatHypic``: the LangChain chat model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Annotated, Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput, ModelProfile
from langchain_core.load.serializable import SerializedConstructor, SerializedNotImplemented
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import AfterValidator, ConfigDict, Field

from hypic_agents.backend import Backend
from hypic_agents.core import Scope
from hypic_agents.errors import InvalidInput
from hypic_agents.integrations.langchain import blocks  # noqa: F401  registers the translator of content blocks
from hypic_agents.integrations.langchain.answers import to_chunks, to_result
from hypic_agents.integrations.langchain.errors import langchain_errors
from hypic_agents.integrations.langchain.hints import find_segments
from hypic_agents.integrations.langchain.messages import to_backend
from hypic_agents.integrations.langchain.observe import enclosing_run, install
from hypic_agents.integrations.langchain.options import Call, make_request
from hypic_agents.integrations.langchain.profile import identity, resolve_profile
from hypic_agents.integrations.langchain.structured import Method, structured_model
from hypic_agents.integrations.langchain.tools import tool_specs
from hypic_agents.integrations.tool_choice import parse_tool_choice
from hypic_agents.runtime.config import EngineConfig, default_model, parse_policy
from hypic_agents.runtime.shared import shared_backend


def _checked(policy: str) -> str:
    parse_policy(policy)
    return policy


class ChatHypic(BaseChatModel):
    """A chat model that reuses every document, tool spec and trace of a prompt wherever it stands.

    ::

        from hypic_agents.integrations.langchain import ChatHypic

        model = ChatHypic(model="tiny")    # a directory, a hub name, or the small model that ships with the package
        answer = model.invoke("Hello")
        answer.response_metadata["hypic"]  # what was reused, segment by segment, and why not where it was not

    The model is loaded with the first call, once a process for all objects that name it. Documents that retrievers
    return are recognised where they stand in a prompt; its tokens never change.

    Attributes:
        model_name: Also as ``model``. ``HYPIC_MODEL`` sets the default.
        max_tokens: Longest answer; None for up to 1024, or what the window leaves.
        timeout, max_retries: Seconds a call may take, loading aside; tries of a backend that reaches over a network.
        policy: Reuse policy, by name and with changes, such as "exact" or "hypic:head_seam=16"; None for the engine's.
        tenant, groups: Whose documents these are; nothing is reused across scopes.
        observe: Recognise the documents of retrievers and chains.
        device, dtype, engine_config: Of the embedded engine; the last is its whole configuration, and comes first.
        backend: Answers instead of the embedded engine.
    """

    model_config = ConfigDict(populate_by_name=True, arbitrary_types_allowed=True)

    model_name: str = Field(default_factory=default_model, alias="model")
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: list[str] | None = Field(default=None, alias="stop_sequences")
    seed: int | None = None
    timeout: float | None = None
    max_retries: int | None = None
    streaming: bool = False
    policy: Annotated[str, AfterValidator(_checked)] | None = None
    tenant: str = "default"
    groups: list[str] = Field(default_factory=list)
    observe: bool = True
    device: str = "auto"
    dtype: str = "auto"
    engine_config: EngineConfig | None = Field(default=None, exclude=True)
    backend: Backend | None = Field(default=None, exclude=True)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        if self.observe:
            install()

    @property
    def scope(self) -> Scope:
        """Whose segments this model uses."""
        return Scope(self.tenant, frozenset(self.groups))

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        strict: bool | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Let the model call tools.

        Args:
            tools: Tools, functions, classes or specs.
            tool_choice: None or "auto"; "none"; "any", "required" or True; a tool's name, or OpenAI's dict of it.
            strict: Put into the specs; arguments always follow the schema.
            parallel_tool_calls: False for at most one call an answer.

        Raises:
            InvalidInput: ``tool_choice`` names none of the tools.
        """
        with langchain_errors():
            specs = tool_specs(tools, strict=strict)
            bound: dict[str, Any] = {"tools": specs, **kwargs}
            if tool_choice is not None:
                bound["tool_choice"] = parse_tool_choice(tool_choice, specs)
            if parallel_tool_calls is not None:
                bound["parallel_tool_calls"] = parallel_tool_calls
            return self.bind(**bound)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type | None = None,
        *,
        method: Method = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """A runnable that answers with an object of a schema. The answer is held to it while it is written.

        Args:
            schema: A Pydantic class, a ``TypedDict``, a JSON schema or a function spec.
            method: "json_schema"; "function_calling", through a tool; "json_mode", any JSON object without a schema.
            include_raw: Return "raw", "parsed" and "parsing_error" instead of raising.
            strict, kwargs: Passed on; answers always follow the schema.
        """
        with langchain_errors():
            return structured_model(self, schema, method, strict=strict, include_raw=include_raw, options=kwargs)

    def get_token_ids(self, text: str) -> list[int]:
        """Ids of the model's own tokenizer."""
        with langchain_errors():
            return self._backend().token_ids(text)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """Length of the prompt that these make: chat template and tool specs included."""
        with langchain_errors():
            return self._backend().count_tokens(to_backend(messages), tool_specs(tools or ()))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with langchain_errors():
            call = self._call(messages, stop, run_manager, kwargs)
            return to_result(call.backend.generate(call.request), call.model_name)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with langchain_errors():
            call = await asyncio.to_thread(self._call, messages, stop, run_manager, kwargs)
            return to_result(await call.backend.agenerate(call.request), call.model_name)

    # Core tells callbacks of every chunk itself; the run manager serves to find the run.
    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with langchain_errors():
            call = self._call(messages, stop, run_manager, kwargs)
            with closing(call.backend.stream(call.request)) as chunks:
                for chunk in chunks:
                    yield from to_chunks(chunk, call.model_name)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        with langchain_errors():
            call = await asyncio.to_thread(self._call, messages, stop, run_manager, kwargs)
            async with aclosing(call.backend.astream(call.request)) as chunks:
                async for chunk in chunks:
                    for piece in to_chunks(chunk, call.model_name):
                        yield piece

    def _call(
        self,
        messages: Sequence[BaseMessage],
        stop: Sequence[str] | None,
        run_manager: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None,
        given: Mapping[str, Any],
    ) -> Call:
        """What to ask of whom. May read files or tokenise, so never on an event loop."""
        sent = to_backend(messages)
        run = None if not self.observe else run_manager.parent_run_id if run_manager is not None else enclosing_run()
        request = make_request(self, sent, find_segments(messages, sent, self.scope, run), stop, given)
        backend = self._backend(given.get("model"))
        name = backend.model_info().name if self.backend is not None else given.get("model") or self.model_name
        return Call(backend, request, name)

    def _backend(self, model: str | None = None) -> Backend:
        if self.backend is None:
            config = self.engine_config or EngineConfig(device=self.device, model_dtype=self.dtype)
            return shared_backend(model or self.model_name, config)
        if model not in (None, self.model_name, self.backend.model_info().name):
            raise InvalidInput(f"model={model!r}: the backend given serves {self.backend.model_info().name!r} alone")
        return self.backend

    def _resolve_model_profile(self) -> ModelProfile | None:
        return resolve_profile(self)

    @property
    def _llm_type(self) -> str:
        return "chat-hypic"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return identity(self)

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        # LangChain's response cache must tell apart models of one name and other weights.
        return f"{super()._get_llm_string(stop, **kwargs)}---{sorted(self._identifying_params.items())}"

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return True

    def to_json(self) -> SerializedConstructor | SerializedNotImplemented:
        # Without its backend this would be another model.
        return super().to_json() if self.backend is None else self.to_json_not_implemented()
