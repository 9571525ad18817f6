"""Several servers of one model: which are well, and in which order a prompt tries them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hypic_agents.errors import InvalidInput
from hypic_agents.integrations.sglang.dialect import ServerFacts, check_seam_mode, read_facts
from hypic_agents.integrations.sglang.errors import RequestRejected, ServerError, UnsupportedServer
from hypic_agents.integrations.sglang.known import SentSegments
from hypic_agents.integrations.sglang.route import Key, rank
from hypic_agents.integrations.sglang.transport import Transport

PROBE_S: Final = 2.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


@dataclass(slots=True, eq=False)
class Server:
    """One server, and what this client knows of it.

    Attributes:
        facts: None until it answered once.
        sent: Segments that it was sent.
        warming: Parts that it is being sent ahead right now.
        down_until: Time (of the pool's clock) until which it is left alone; 0 while it is well.
        pause_s: How long that was; doubles while it stays down.
        lost: It could not be reached, so its cache may be gone with its process.
        task: Asks it in the background whether it is well again.
    """

    transport: Transport
    facts: ServerFacts | None = None
    sent: SentSegments = field(default_factory=SentSegments)
    warming: dict[bytes, asyncio.Future[bool]] = field(default_factory=dict)
    down_until: float = 0.0
    pause_s: float = 0.0
    lost: bool = False
    task: asyncio.Task[object] | None = None

    @property
    def url(self) -> str:
        return self.transport.url


class Pool:
    """The servers of one backend. Used on one event loop only.

    Args:
        servers: In the order given by the user.
        allow_any_mode: Accept HYPIC builds in any mode.
        clock: Seconds; injected by tests.
    """

    def __init__(
        self, servers: Sequence[Server], *, allow_any_mode: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.servers = tuple(servers)
        self._allow_any_mode = allow_any_mode
        self._clock = clock

    async def connect(self) -> ServerFacts:
        """Facts of the first server that answers. The first call asks all of them, at once, and waits.

        Raises:
            ServerError: None answers.
            UnsupportedServer: One is no SGLang server, in a bad mode, or serves another model.
        """
        if not self._known:
            failures = await asyncio.gather(*map(self._ask, self.servers))
            if not self._known:
                raise next(error for error in failures if error is not None)
        facts = [server.facts for server in self.servers if server.facts is not None]
        models = {(one.model, one.separated is None) for one in facts}
        if len(models) > 1:
            raise UnsupportedServer(
                "the servers differ: "
                + ", ".join(f"{s.url} serves {s.facts.model!r}" for s in self._known if s.facts)
                + "; give servers of one model and one kind"
            )
        return facts[0]

    def order(self, keys: Sequence[Key]) -> list[Server]:
        """Servers for a prompt, the best first; those that are down come last, and are asked how they are meanwhile."""
        for server in self.servers:
            if 0 < server.down_until <= self._clock() and (server.task is None or server.task.done()):
                server.task = asyncio.create_task(self._probe(server))
        well = {server.url: server for server in self._known if not server.down_until}
        ill = [server for server in self._known if server.down_until]
        return [*(well[url] for url in rank(list(well), keys)), *ill]

    def mark_down(self, server: Server, error: ServerError) -> None:
        """Leave a server alone for a while, longer each time."""
        server.lost = server.lost or not error.reached
        server.pause_s = min(_LONGEST_PAUSE_S, 2 * server.pause_s or _FIRST_PAUSE_S)
        server.down_until = self._clock() + server.pause_s

    def mark_up(self, server: Server) -> None:
        """It answered."""
        if server.lost:
            server.sent.clear()
        server.down_until, server.pause_s, server.lost = 0.0, 0.0, False

    @property
    def _known(self) -> list[Server]:
        return [server for server in self.servers if server.facts is not None]

    async def _ask(self, server: Server) -> ServerError | None:
        try:
            info = await self._get(server, "/server_info", "/get_server_info")
            models = await self._get(server, "/v1/models")
        except ServerError as error:
            self.mark_down(server, error)
            return error
        facts = read_facts(server.url, info, models)
        if facts.separated is not None:
            check_seam_mode(server.url, facts.separated, allow_any=self._allow_any_mode)
        server.facts = facts
        self.mark_up(server)
        return None

    async def _get(self, server: Server, path: str, older: str = "") -> object:
        """The newer path, else the older one."""
        try:
            return await server.transport.steady("GET", path)
        except RequestRejected as error:
            if not older or error.status != 404:
                raise
            return await server.transport.steady("GET", older)

    async def _probe(self, server: Server) -> None:
        """Whether a server that was down is well again; one that never answered is asked who it is."""
        try:
            await server.transport.call("GET", "/health", timeout_s=PROBE_S)
            if server.facts is None:
                await self._ask(server)
            else:
                self.mark_up(server)
        except ServerError as error:
            self.mark_down(server, error)
        except InvalidInput as error:
            self.mark_down(server, ServerError(str(error)))
