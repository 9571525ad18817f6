"""The public names are a promise: adding or removing one is a decision, made here."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import hypic_agents

PUBLIC = [
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


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_public_list() -> None:
    assert hypic_agents.__all__ == PUBLIC
    assert dir(hypic_agents) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_resolves(name: str) -> None:
    assert getattr(hypic_agents, name) is getattr(hypic_agents, name)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        hypic_agents.Motor  # noqa: B018  # reading the attribute is the test


def test_version_is_the_installed_one() -> None:
    assert hypic_agents.__version__ == version("hypic-agents")


@pytest.mark.parametrize(
    "statement",
    [
        "import hypic_agents",
        "from hypic_agents import Segment, Scope, ReusePolicy, SamplingParams, errors",
        "from hypic_agents import Backend, ChatRequest, EmbeddedBackend, ModelInfo",
        "import hypic_agents.cli",
        "import hypic_agents.testing",
    ],
)
def test_light_imports_leave_torch_out(statement: str) -> None:
    heavy = _python(f"{statement}; import sys; print(sorted({{'torch', 'transformers'}} & set(sys.modules)))")
    assert heavy == "[]"
