"""Calls that may fail or hang: a limit on how long they are waited for, and a pause after failures. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import BoundedSemaphore, Lock, Semaphore, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST_HANGING = 16


class Breaker:
    """Refuses calls for ``pause_s`` after a failure, twice as long after the next one, up to ``most_s``.

    After a pause one call is let through; the others wait for how it fares.

    Args:
        pause_s, most_s: Seconds.
        now: A clock that only grows, in seconds.

    Attributes:
        failures: All failures so far.
        slots: For the calls that may be under way at a time, see :class:`Pending`.
    """

    def __init__(self, pause_s: float = 5.0, most_s: float = 160.0, now: Callable[[], float] = time.monotonic) -> None:
        self._first_s = self._pause_s = pause_s
        self._most_s = most_s
        self._now = now
        self._lock = Lock()
        self._closed_until = float("-inf")
        self._failing = False
        self.failures = 0
        self.slots = BoundedSemaphore(_MOST_HANGING)

    def another(self) -> Breaker:
        """One for other calls, with the same times."""
        return Breaker(self._first_s, self._most_s, self._now)

    def allows(self) -> bool:
        """Whether a call may be made now; if so, report how it went."""
        with self._lock:
            if not self._failing:
                return True
            if self._now() < self._closed_until:
                return False
            self._closed_until = self._now() + self._pause_s
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._failing, self._pause_s = False, self._first_s

    def failed(self) -> None:
        with self._lock:
            self.failures += 1
            self._pause_s = min(self._most_s, 2 * self._pause_s) if self._failing else self._first_s
            self._failing = True
            self._closed_until = self._now() + self._pause_s


class Pending(Generic[T]):
    """A call in a thread of its own, which nobody has to wait for.

    Args:
        call: What to do.
        slots: One for each call that may be under way at a time; this one keeps its slot until it ends.

    Raises:
        TimeoutError: all slots are taken, because earlier calls hang.
        RuntimeError: no thread can be started.
    """

    def __init__(self, call: Callable[[], T], slots: Semaphore) -> None:
        if not slots.acquire(blocking=False):
            raise TimeoutError("too many calls are under way")
        self._call = call
        self._slots = slots
        self._found: list[T] = []
        self._error: BaseException | None = None
        # A daemon: a call that hangs must not keep the process from ending.
        self._thread = Thread(target=self._run, name="hypic-store-remote", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            slots.release()
            raise

    def result(self, within_s: float) -> T:
        """What the call returned or raised.

        Raises:
            TimeoutError: it did not end in that time; it goes on in its thread.
        """
        self._thread.join(max(0.0, within_s))
        if self._thread.is_alive():
            raise TimeoutError(f"no answer within {within_s:.3g} s")
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._call())
        except BaseException as error:  # noqa: BLE001  raised where the result is asked for
            self._error = error
        finally:
            self._slots.release()
