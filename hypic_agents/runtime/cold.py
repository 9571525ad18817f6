"""Entries of admitted requests, until their prefill runs: begun, waited for, taken or forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hypic_agents.runtime.build import Builder
from hypic_agents.runtime.flight import Ticket
from hypic_agents.runtime.limits import as_hypic
from hypic_agents.runtime.plan import Build
from hypic_agents.runtime.request import Request

_WAIT_S = 0.02


class ColdEntries:
    """The tickets of requests whose prefill has not run yet.

    Args:
        builder: Makes what is missing.
        builds: The entries that a request needs.
    """

    def __init__(self, builder: Builder, builds: Callable[[Request], Sequence[Build]]) -> None:
        self._builder = builder
        self._builds = builds
        self._tickets: dict[int, Ticket] = {}

    def begin(self, requests: Iterable[Request]) -> None:
        """Send for what these requests lack, and take what has come for any."""
        for request in requests:
            try:
                self._tickets[request.id] = self._start(request)
            except Exception as error:  # noqa: BLE001  one request's failure must not touch the others
                request.fail(as_hypic(error))
        if self._tickets:
            self._builder.pump()

    def is_ready(self, request: Request) -> bool:
        """Whether its entries are there. A request that cannot have them fails."""
        if request.id not in self._tickets:  # Ctrl-C struck between its admission and its ticket
            self.begin([request])
            if request.done:
                return False
        ticket = self._tickets[request.id]
        if ticket.error is not None:
            request.fail(as_hypic(ticket.error))
        return ticket.ready

    @property
    def spare(self) -> bool:
        """Whether a worker has nothing to do."""
        return self._builder.spare > 0

    def waiting(self, request: Request) -> Ticket | None:
        """The ticket of a request whose entries are not all there."""
        ticket = self._tickets.get(request.id)
        return None if ticket is None or ticket.ready else ticket

    def wait(self) -> None:
        """Return when there may be news, and soon in any case. Any thread."""
        self._builder.wait(_WAIT_S)

    def start(self, builds: Sequence[Build]) -> Ticket:
        """A ticket for entries that no request waits for; to be dropped by the caller."""
        return self._builder.start(builds)

    def have_come(self, ticket: Ticket) -> bool:
        """Move on, and say whether a started ticket's entries are there.

        Raises:
            Exception: what keeps one from being built.
        """
        self._builder.pump()
        if ticket.error is not None:
            raise ticket.error
        return ticket.ready

    def take(self, requests: Sequence[Request]) -> list[Ticket]:
        """Ready tickets of requests, to be dropped by the caller.

        Waits where one was taken before, which happens only if the pass that took it failed.
        """
        taken: list[Ticket] = []
        try:
            for request in requests:
                known = request.id in self._tickets
                taken.append(self._tickets.pop(request.id) if known else self._start(request))
                self._builder.finish(taken[-1])
        except BaseException:
            self.drop(taken)
            raise
        return taken

    def drop(self, tickets: Iterable[Ticket]) -> None:
        """Give taken tickets back."""
        for ticket in tickets:
            self._builder.drop(ticket)

    def forget(self, requests: Iterable[Request]) -> None:
        """Give up what finished requests still wait for or hold."""
        self.drop(self._tickets.pop(request.id) for request in requests if request.id in self._tickets)

    def _start(self, request: Request) -> Ticket:
        # Strict-prefix reuse takes what is there, and captures the rest in its own pass.
        return self._builder.start(() if request.plan.policy.prefix else self._builds(request))
