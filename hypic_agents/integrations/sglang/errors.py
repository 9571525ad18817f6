"""What a server, or the way to it, does wrong.

::

    HypicError
    ├── InvalidInput
    │   ├── RequestRejected       the server refuses the request (status 4xx)
    │   │   └── AccessDenied      the key is missing or wrong (401, 403)
    │   ├── UnsupportedServer     no SGLang server, or one that runs in a mode we cannot use
    │   └── InvalidMessages
    │       └── UnsafeContent     content that the server would read as its separator or as a control token
    └── ServerError
        ├── ServerUnavailable     not reached, too busy, or failed (no answer, 429, 5xx)
        └── InvalidReply          a reply that is cut, too large, redirected elsewhere, or not what was documented
"""

from __future__ import annotations

import re

from hypic_agents.errors import ContextOverflow, HypicError, InvalidInput, InvalidMessages

_INPUT_TOO_LONG = re.compile(r"input \((\d+) tokens\).{0,80}context length \((\d+) tokens\)", re.DOTALL)
_TOTAL_TOO_LONG = re.compile(
    r"context length of (\d+) tokens.{0,120}?: (\d+) tokens from the input messages and (\d+) tokens", re.DOTALL
)


class RequestRejected(InvalidInput):
    """The server refuses the request; the message holds its reason, ``status`` the HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class AccessDenied(RequestRejected):
    """The server wants another key."""


class UnsupportedServer(InvalidInput):
    """The server is no SGLang server, or runs in a mode that cannot be used."""


class UnsafeContent(InvalidMessages):
    """Content that the server would not read as content."""


class ServerError(HypicError):
    """A server, or the way to it, failed; another try may help.

    Attributes:
        untouched: Nothing was computed for the request, so another server may take it at once.
        reached: There was a connection; else the server may be another process when it is back.
        retry_after_s: Seconds the server asked to wait; None if it did not say.
    """

    def __init__(
        self, message: str, *, untouched: bool = False, reached: bool = True, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.untouched = untouched
        self.reached = reached
        self.retry_after_s = retry_after_s


class ServerUnavailable(ServerError):
    """The server cannot be reached, is too busy, or failed."""


class InvalidReply(ServerError):
    """The reply is cut, too large, redirected to another host, or not what SGLang documents."""


def rejection(message: str, status: int = 400) -> InvalidInput:
    """The error for a refused request, from the server's own words."""
    if found := _INPUT_TOO_LONG.search(message):
        return ContextOverflow(int(found[1]), 0, int(found[2]))
    if found := _TOTAL_TOO_LONG.search(message):
        return ContextOverflow(int(found[2]), int(found[3]), int(found[1]))
    return RequestRejected(f"the server refuses the request: {message}", status)
