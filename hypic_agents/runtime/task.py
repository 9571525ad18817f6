"""Long work of the engine's thread, taken in steps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any


class Task:
    """A generator on its way, and the future of what it returns. Cancelling that ends it at its next step.

    Args:
        make: Makes the generator, at its first step.
    """

    def __init__(self, make: Callable[[], Generator[None, None, Any]]) -> None:
        self.future: Future[Any] = Future()
        self._make = make
        self._steps: Generator[None, None, Any] | None = None

    def step(self) -> bool:
        """Take one step; True at the end."""
        if self.future.cancelled():
            self._close()
            return True
        try:
            if self._steps is None:
                self._steps = self._make()
            next(self._steps)
        except StopIteration as end:
            if self.future.set_running_or_notify_cancel():
                self.future.set_result(end.value)
        except Exception as error:  # noqa: BLE001  it belongs to whoever waits
            self.fail(error)
        else:
            return False
        return True

    def fail(self, error: Exception) -> None:
        """End it with an error."""
        self._close()
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def _close(self) -> None:
        if self._steps is not None:
            self._steps.close()
