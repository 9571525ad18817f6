"""HTTP to one server: JSON in, JSON or server-sent events out, bounded, and never redirected to another host."""

from __future__ import annotations

import asyncio
import json
import math
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import httpx

from hypic_agents.errors import InvalidInput
from hypic_agents.integrations.sglang.errors import (
    AccessDenied,
    InvalidReply,
    RequestRejected,
    ServerError,
    ServerUnavailable,
    rejection,
)
from hypic_agents.integrations.sglang.retry import RetryPolicy, retry_after

DONE: Final = "[DONE]"
_MAX_HOPS: Final = 3
_SHOWN_LEN: Final = 500  # characters of a server's own words in an error
_ERROR_BYTES: Final = 64 << 10


def origin_of(base_url: str) -> httpx.URL:
    """The URL of a server; a path on it is kept, such as that of a proxy.

    Raises:
        InvalidInput: No http or https URL with a host.
    """
    try:
        url = httpx.URL(base_url.rstrip("/"))
    except (httpx.InvalidURL, TypeError) as error:
        raise InvalidInput(f"base_url={base_url!r} is no URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidInput(f"base_url={base_url!r}: use a URL such as http://127.0.0.1:30000")
    if url.userinfo or url.query or url.fragment:
        raise InvalidInput("base_url holds a user, a query or a fragment; pass keys with api_key= or headers=")
    return url.copy_with(path=url.path.rstrip("/").removesuffix("/v1"))


class Transport:
    """Calls one server.

    Args:
        origin: As :func:`origin_of` gives it.
        client: Shared by all servers; it follows no redirects itself.
        max_bytes: Most bytes of one reply, decompressed.
        retry: How calls that change nothing are repeated.
    """

    def __init__(self, origin: httpx.URL, client: httpx.AsyncClient, max_bytes: int, retry: RetryPolicy) -> None:
        self._origin = origin
        self._client = client
        self._max_bytes = max_bytes
        self._retry = retry

    @property
    def url(self) -> str:
        return str(self._origin)

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Any:
        """The JSON value of a reply; None for an empty one, the text where it is no JSON by its own account.

        Raises:
            ServerUnavailable, InvalidReply, RequestRejected, ContextOverflow
        """
        async with self._reply(method, path, body, timeout_s) as response:
            raw = await self._read(response)
            kind = response.headers.get("content-type", "")
        if not raw.strip():
            return None
        if "json" not in kind:
            return raw.decode("utf-8", "replace")
        return self._json(raw)

    async def steady(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """As :meth:`call`, for a call that may be repeated when the server is busy or fails."""
        attempt = 1
        while True:
            try:
                return await self.call(method, path, body)
            except ServerError as error:
                wait = self._retry.wait_s(attempt, error.retry_after_s)
                if attempt > self._retry.max_retries or math.isinf(wait):
                    raise
            attempt += 1
            await asyncio.sleep(wait)

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """The JSON values of a stream of events, up to ``[DONE]``.

        Raises:
            ServerUnavailable, InvalidReply, RequestRejected, ContextOverflow
        """
        async with self._reply("POST", path, body, None) as response:
            kind = response.headers.get("content-type", "")
            if "text/event-stream" not in kind:
                raise self._invalid(f"is no stream of events but {kind or 'of no type'!r}")
            async with aclosing(self._data(response)) as pieces:
                async for data in pieces:
                    if data == DONE:
                        return
                    event = self._json(data.encode())
                    if isinstance(event, dict) and event.get("error"):
                        raise self._streamed_error(event["error"])
                    yield event
        raise self._invalid("ends before it is complete")

    @asynccontextmanager
    async def _reply(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float | None
    ) -> AsyncIterator[httpx.Response]:
        url = self._origin.copy_with(path=f"{self._origin.path.rstrip('/')}{path}")
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        try:
            for _ in range(_MAX_HOPS + 1):
                request = self._client.build_request(
                    method, url, content=content, headers={"content-type": "application/json"} if content else None
                )
                if timeout_s is not None:
                    request.extensions["timeout"] = httpx.Timeout(timeout_s).as_dict()
                response = await self._client.send(request, stream=True)
                try:
                    if response.has_redirect_location:
                        url = self._next(url, response)
                        continue
                    if not response.is_success:
                        raise await self._failure(response)
                    yield response
                    return
                finally:
                    await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            message = f"{self.url} cannot be reached: {_said(error)}"
            raise ServerUnavailable(message, untouched=True, reached=False) from error
        except httpx.TimeoutException as error:
            raise ServerUnavailable(f"{self.url} does not answer {path} in time: {_said(error)}") from error
        except (httpx.RemoteProtocolError, httpx.DecodingError) as error:
            raise self._invalid(f"is broken off or malformed: {_said(error)}") from error
        except (httpx.HTTPError, ssl.SSLError) as error:  # an alert behind the handshake comes through unwrapped
            raise ServerUnavailable(f"the connection to {self.url} failed: {_said(error)}") from error
        raise self._invalid(f"is a chain of more than {_MAX_HOPS} redirects")

    def _next(self, url: httpx.URL, response: httpx.Response) -> httpx.URL:
        """Where a redirect leads: a key must not travel to another host, nor a question lose its body."""
        target = url.join(response.headers["location"])
        same = (target.scheme, target.host, target.port) == (url.scheme, url.host, url.port)
        if not same:
            raise self._invalid(f"redirects to another host, {target.scheme}://{target.host}; name that one instead")
        if response.status_code not in (307, 308) and response.request.method != "GET":
            raise self._invalid(f"redirects with status {response.status_code}, which drops the request's body")
        return target

    async def _read(self, response: httpx.Response) -> bytes:
        raw = bytearray()
        async for piece in response.aiter_bytes():
            raw += piece
            self._check_size(len(raw))
        return bytes(raw)

    async def _data(self, response: httpx.Response) -> AsyncGenerator[str, None]:
        """The data of each event (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
        lines: list[str] = []
        buffer, size = b"", 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            self._check_size(size)
            *whole, buffer = (buffer + piece).split(b"\n")
            for raw in whole:
                line = raw.rstrip(b"\r").decode("utf-8", "replace")
                if line.startswith("data:"):
                    lines.append(line[5:].removeprefix(" "))
                elif not line and lines:
                    yield "\n".join(lines)
                    lines = []

    async def _failure(self, response: httpx.Response) -> Exception:
        raw = bytearray()
        async for piece in response.aiter_bytes():
            raw += piece
            if len(raw) > _ERROR_BYTES:
                break
        message = _message(bytes(raw)) or response.reason_phrase
        status = response.status_code
        if status in (401, 403):
            return AccessDenied(f"{self.url} denies access ({status}): pass its key with api_key=", status)
        if status == 404:
            where = response.request.url.path
            return RequestRejected(f"{self.url} has no {where} ({message}); is it an SGLang server?", status)
        if status in (408, 429) or status >= 500:
            wait = retry_after(response.headers.get("retry-after"))
            untouched = status in (429, 503)
            return ServerUnavailable(
                f"{self.url} answers with status {status}: {message}", untouched=untouched, retry_after_s=wait
            )
        return rejection(f"{message} (status {status})", status)

    def _streamed_error(self, error: Any) -> Exception:
        message = str(error.get("message", error) if isinstance(error, dict) else error)[:_SHOWN_LEN]
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, int) and 400 <= code < 500 and code not in (408, 429):
            return rejection(message, code)
        return ServerUnavailable(f"{self.url} gives up on the request: {message}")

    def _json(self, raw: bytes) -> Any:
        try:
            return json.loads(raw)
        except ValueError as error:
            shown = raw[:80].decode("utf-8", "replace")
            raise self._invalid(f"is no JSON: {shown!r}") from error

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise self._invalid(f"is larger than {self._max_bytes} bytes; allow more with max_reply_bytes=")

    def _invalid(self, what: str) -> InvalidReply:
        return InvalidReply(f"the reply of {self.url} {what}")


def _message(raw: bytes) -> str:
    """The words of an error reply: SGLang's two shapes, FastAPI's, or the text."""
    text = raw.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text)
    except ValueError:
        return text[:_SHOWN_LEN]
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
    return str(value)[:_SHOWN_LEN]


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
