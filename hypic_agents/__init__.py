"""Reuse every part of a prompt wherever it stands. Importing this package does not import torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypic_agents import errors
    from hypic_agents.backend import Backend, ChatRequest, ModelInfo
    from hypic_agents.calls import ToolCall
    from hypic_agents.completion import Completion, ReuseReport, StreamChunk
    from hypic_agents.core import Prompt, SamplingParams, Scope, Segment
    from hypic_agents.prompt.builder import PromptBuilder
    from hypic_agents.runtime.config import EngineConfig
    from hypic_agents.runtime.embedded import EmbeddedBackend
    from hypic_agents.runtime.engine import Engine
    from hypic_agents.runtime.policy import ReusePolicy

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "ChatRequest",
    "Completion",
    "EmbeddedBackend",
    "Engine",
    "EngineConfig",
    "ModelInfo",
    "Prompt",
    "PromptBuilder",
    "ReusePolicy",
    "ReuseReport",
    "SamplingParams",
    "Scope",
    "Segment",
    "StreamChunk",
    "ToolCall",
    "__version__",
    "errors",
]

_HOMES = {
    "Backend": "backend",
    "ChatRequest": "backend",
    "Completion": "completion",
    "EmbeddedBackend": "runtime.embedded",
    "Engine": "runtime.engine",
    "EngineConfig": "runtime.config",
    "ModelInfo": "backend",
    "Prompt": "core",
    "PromptBuilder": "prompt.builder",
    "ReusePolicy": "runtime.policy",
    "ReuseReport": "completion",
    "SamplingParams": "core",
    "Scope": "core",
    "Segment": "core",
    "StreamChunk": "completion",
    "ToolCall": "calls",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("hypic_agents.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"hypic_agents.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
