"""SGLang over HTTP: the same chat models, answered by servers."""

from hypic_agents.integrations.sglang.backend import SGLangBackend
from hypic_agents.integrations.sglang.connection import Connection
from hypic_agents.integrations.sglang.errors import (
    AccessDenied,
    InvalidReply,
    RequestRejected,
    ServerError,
    ServerUnavailable,
    UnsafeContent,
    UnsupportedServer,
)
from hypic_agents.integrations.sglang.retry import RetryPolicy

__all__ = [
    "AccessDenied",
    "Connection",
    "InvalidReply",
    "RequestRejected",
    "RetryPolicy",
    "SGLangBackend",
    "ServerError",
    "ServerUnavailable",
    "UnsafeContent",
    "UnsupportedServer",
]
