"""How servers are reached: certificates, waits and bounds."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from hypic_agents.errors import InvalidInput

# SGLang closes idle connections after 5 s; a question must not meet one that is being closed.
_KEEPALIVE_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Connection:
    """What all connections of a backend have in common.

    Attributes:
        verify: A file or an ``ssl.SSLContext`` with the certificates to trust; False trusts all.
        cert: Of this client: a file, or files of certificate and key.
        connect_timeout_s: Longest wait for a connection, in seconds.
        read_timeout_s: Longest silence of a server, in seconds; what a request may take is its own ``timeout_s``.
        max_reply_bytes: Longest reply, decompressed.
        max_connections: To all servers together.
        trust_env: Heed proxies named in the environment.
        http_transport: Makes connections, instead of the network.
    """

    verify: bool | str | ssl.SSLContext = True
    cert: str | tuple[str, str] | None = None
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 600.0
    max_reply_bytes: int = 64 << 20
    max_connections: int = 256
    trust_env: bool = True
    http_transport: httpx.AsyncBaseTransport | None = None

    def __post_init__(self) -> None:
        for name in ("connect_timeout_s", "read_timeout_s", "max_reply_bytes", "max_connections"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name}={getattr(self, name)}: use a number above 0")

    def client(self, headers: Mapping[str, str]) -> httpx.AsyncClient:
        """A pool of connections for the event loop that runs; ``headers`` go with every call.

        Raises:
            InvalidInput: A certificate cannot be read, or a header is malformed.
        """
        try:
            return httpx.AsyncClient(
                headers=dict(headers),
                verify=self._trusted(),
                timeout=httpx.Timeout(self.read_timeout_s, connect=self.connect_timeout_s),
                limits=httpx.Limits(
                    max_connections=self.max_connections,
                    max_keepalive_connections=self.max_connections,
                    keepalive_expiry=_KEEPALIVE_S,
                ),
                follow_redirects=False,
                trust_env=self.trust_env,
                transport=self.http_transport,
            )
        except (OSError, ValueError) as error:
            # Its words may quote a header, and so the key.
            raise InvalidInput(
                f"the connection cannot be set up ({type(error).__name__}): check verify={self.verify!r}, "
                f"cert={self.cert!r}, and that key and headers are plain ASCII"
            ) from None

    def _trusted(self) -> bool | ssl.SSLContext:
        if isinstance(self.verify, ssl.SSLContext) or (isinstance(self.verify, bool) and self.cert is None):
            return self.verify
        context = ssl.create_default_context(cafile=self.verify if isinstance(self.verify, str) else None)
        if self.verify is False:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            context.load_cert_chain(*((self.cert,) if isinstance(self.cert, str) else self.cert))
        return context
