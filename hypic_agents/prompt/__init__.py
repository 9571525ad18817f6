"""Parts in, exact token ids plus segment spans out."""

from hypic_agents.prompt.builder import PromptBuilder
from hypic_agents.prompt.tokenizer import ChatTokenizer

__all__ = ["ChatTokenizer", "PromptBuilder"]
