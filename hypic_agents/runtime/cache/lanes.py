"""Several objects at a time from a place that is slow and may hang. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Semaphore

from hypic_agents.runtime.cache.breaker import Pending

LANES = 8


class _Lane:
    """Gets its objects one after the other, in a thread of its own."""

    def __init__(self, get: Callable[[str], bytearray | None], names: Sequence[str], slots: Semaphore) -> None:
        self.got: dict[str, bytearray | None] = {}
        self._get = get
        self._names = names
        self._pending = Pending(self._run, slots)

    def join(self, within_s: float) -> None:
        """Wait for the end, as long as an object comes within every ``within_s``; raises what kept the next away."""
        while True:
            count = len(self.got)
            try:
                self._pending.result(within_s)
            except TimeoutError:
                if len(self.got) == count:
                    raise
            else:
                return

    def _run(self) -> None:
        for name in self._names:
            self.got[name] = self._get(name)


def get_all(
    get: Callable[[str], bytearray | None], names: Sequence[str], slots: Semaphore, within_s: float
) -> tuple[dict[str, bytearray], Exception | None]:
    """The objects that are there, and what kept others away, if anything did.

    A place that hangs is waited for once, not once for every object.

    Args:
        get: Gives an object's bytes, or None if there is none.
        names: Of the objects, each once.
        slots: For the calls that may be under way at a time, see :class:`Pending`.
        within_s: Longest wait for an object.
    """
    lanes: list[_Lane] = []
    problem: Exception | None = None
    try:
        for first in range(min(LANES, len(names))):
            lanes.append(_Lane(get, names[first::LANES], slots))  # noqa: PERF401  known, if a later one cannot start
    except (TimeoutError, RuntimeError) as error:
        problem = error
    hangs = False
    for lane in lanes:
        try:
            lane.join(0.0 if hangs else within_s)
        except Exception as error:  # noqa: BLE001  filesystems raise what they like
            problem = problem or error
            hangs = hangs or isinstance(error, TimeoutError)
    return {name: raw for lane in lanes for name, raw in dict(lane.got).items() if raw is not None}, problem
