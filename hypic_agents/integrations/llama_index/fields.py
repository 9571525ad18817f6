"""What a LlamaIndex model of ours is: its fields, its metadata, its backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from llama_index.core.base.llms.types import ChatMessage, LLMMetadata, MessageRole
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools import BaseTool
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from hypic_agents.backend import Backend, ModelInfo
from hypic_agents.core import Scope
from hypic_agents.integrations.llama_index.messages import to_backend
from hypic_agents.integrations.llama_index.observe import install
from hypic_agents.integrations.llama_index.options import DEFAULT_MAX_TOKENS
from hypic_agents.integrations.llama_index.tools import tool_specs
from hypic_agents.runtime.config import EngineConfig, default_model, parse_policy
from hypic_agents.runtime.models.describe import describe
from hypic_agents.runtime.shared import shared_backend


def _checked(policy: str) -> str:
    parse_policy(policy)
    return policy


class ModelFields(FunctionCallingLLM):
    """The part of ``HypicLLM`` that answers nothing; see there for the fields."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: str = Field(default_factory=default_model)
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: list[str] | None = None
    seed: int | None = None
    timeout: float | None = None
    max_retries: int = 0
    policy: Annotated[str, AfterValidator(_checked)] | None = None
    tenant: str = "default"
    groups: list[str] = Field(default_factory=list)
    observe: bool = True
    device: str = "auto"
    dtype: str = "auto"
    engine_config: EngineConfig | None = Field(default=None, exclude=True)
    backend: Backend | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_class_name(cls, data: Any) -> Any:
        # LlamaIndex writes it into what it serialises.
        return {k: v for k, v in data.items() if k != "class_name"} if isinstance(data, Mapping) else data

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        if self.observe:
            install()

    @property
    def scope(self) -> Scope:
        """Whose segments this model uses."""
        return Scope(self.tenant, frozenset(self.groups))

    @property
    def longest_answer(self) -> int:
        """Most tokens of one answer."""
        return self.max_tokens or min(DEFAULT_MAX_TOKENS, self.metadata.context_window // 4)

    @property
    def metadata(self) -> LLMMetadata:
        """From the model's files: nothing is loaded, unless they are not on this machine yet."""
        info = self._info()
        window = info.window if info else describe(self.model).window
        if window is None:
            info = self._backend().model_info()
            window = info.window
        return LLMMetadata(
            context_window=window,
            num_output=self.max_tokens or min(DEFAULT_NUM_OUTPUTS, window // 4),
            is_chat_model=True,
            is_function_calling_model=info is None or info.tools,
            model_name=info.name if info else self.model,
            system_role=MessageRole.SYSTEM,
        )

    @property
    def tokenizer(self) -> Callable[[str], list[int]]:
        """The model's own, for LlamaIndex's counts: ``Settings.tokenizer = llm.tokenizer``."""
        return self._backend().token_ids

    def count_tokens(self, messages: Sequence[ChatMessage], tools: Sequence[BaseTool] = ()) -> int:
        """Length of the prompt that these make: chat template and tool specs included."""
        return self._backend().count_tokens(to_backend(messages), tool_specs(tools))

    def _backend(self) -> Backend:
        if self.backend is not None:
            return self.backend
        return shared_backend(
            self.model, self.engine_config or EngineConfig(device=self.device, model_dtype=self.dtype)
        )

    def _info(self) -> ModelInfo | None:
        """What is known of the model; of the embedded one, once it is loaded."""
        backend = self._backend()
        return backend.model_info() if self.backend is not None or backend.loaded else None
