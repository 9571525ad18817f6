from __future__ import annotations

import pytest

from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from tests.prompt.tokenizers_for_tests import MAKES, hf_tokenizer


@pytest.fixture(params=MAKES)
def make(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(hf_tokenizer("bytes-tool-marks"))


@pytest.fixture(scope="session")
def builder(tokenizer: ChatTokenizer) -> PromptBuilder:
    return PromptBuilder(tokenizer)
