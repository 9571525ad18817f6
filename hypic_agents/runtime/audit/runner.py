"""When audits run: slice by slice, while nothing else is to do, on request or in a thread that lives only as needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Thread, main_thread
from typing import Any

import torch

from hypic_agents.runtime.audit.auditor import Auditor
from hypic_agents.runtime.request import Request

# Pauses after a slice, outside the lock, so that a request that came in meanwhile goes first. The thread's is longer:
# it also leaves short gaps between requests alone.
_YIELD_S = 0.001
_PAUSE_S = 0.02


class AuditRunner:
    """Runs an auditor's slices.

    Args:
        auditor: What to run.
        idle: Whether no request waits or runs; called under ``lock``.
        lock: The engine's own, re-entrant.
        in_background: Start a thread when an audit is pending.
    """

    def __init__(
        self, auditor: Auditor, idle: Callable[[], bool], lock: AbstractContextManager[Any], in_background: bool
    ) -> None:
        self._auditor = auditor
        self._idle = idle
        self._lock = lock
        self._in_background = in_background
        self._thread: Thread | None = None

    @torch.inference_mode()
    def step(self) -> bool:
        """One slice if nothing else is to do; False if there was none, or a request goes first."""
        with self._lock:
            return self._idle() and self._auditor.step()

    def run(self, most: int | None = None) -> int:
        """Slices until a request comes in, nothing is pending, or ``most`` audits are done; returns how many were."""
        before = self._auditor.finished
        while (most is None or self._auditor.finished - before < most) and self.step():
            time.sleep(_YIELD_S)
        return self._auditor.finished - before

    def collect(self, finished: Sequence[Request]) -> None:
        """See :meth:`Auditor.collect`. Starts the thread if it is wanted; call it under the lock, as the thread ends
        under it too: no audit is left over."""
        self._auditor.collect(finished)
        if self._in_background and self._thread is None and self._auditor.pending:
            # Not a daemon, which would be torn down in the middle of a pass: it ends by itself with the main thread.
            self._thread = Thread(target=self._work, name="hypic-audit")
            self._thread.start()

    def forget(self, *, source_id: str | None, tenant: str | None, group: str | None) -> None:
        """See :meth:`Auditor.forget`."""
        with self._lock:
            self._auditor.forget(source_id=source_id, tenant=tenant, group=group)

    def reset(self) -> None:
        """See :meth:`Auditor.reset`."""
        with self._lock:
            self._auditor.reset()

    def _work(self) -> None:
        while main_thread().is_alive():
            time.sleep(_PAUSE_S)
            with self._lock:
                if not self._auditor.pending:
                    self._thread = None
                    return
            self.step()
