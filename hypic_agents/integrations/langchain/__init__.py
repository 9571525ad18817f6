"""LangChain: a chat model that reuses every document, tool spec and trace it has seen, wherever it stands."""

from hypic_agents.integrations.langchain.chat_model import ChatHypic
from hypic_agents.integrations.langchain.errors import as_langchain_error
from hypic_agents.integrations.langchain.observe import DocumentObserver

__all__ = ["ChatHypic", "DocumentObserver", "as_langchain_error"]
