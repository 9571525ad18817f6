"""LlamaIndex: a model that reuses every document, tool spec and trace it has seen, wherever it stands."""

from hypic_agents.integrations.llama_index.compact import HypicCompact
from hypic_agents.integrations.llama_index.llm import HypicLLM
from hypic_agents.integrations.llama_index.observe import NodeObserver

__all__ = ["HypicCompact", "HypicLLM", "NodeObserver"]
