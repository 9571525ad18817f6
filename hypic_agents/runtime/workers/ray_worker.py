"""What runs inside a Ray actor: one model, one job after another, and the latest payloads kept for who asks again.

Arguments and results are strings, numbers and checksummed bytes; nothing of ours is unpickled.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hypic_agents.runtime.workers.contract import BuildJob, WorkerSpec
from hypic_agents.runtime.workers.serve import Cancelled, load_compute

if TYPE_CHECKING:
    from hypic_agents.runtime.state import SegmentPayload

Compute = Callable[[BuildJob], "tuple[SegmentPayload, float]"]
Load = Callable[[WorkerSpec, Callable[[], None]], tuple[Compute, str]]
# Calls of this group run beside a build.
CONTROL = "control"


class Shelf:
    """Payloads by name, the least recently used leaving first, within a budget in bytes."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._num_bytes = 0

    def put(self, name: str, raw: bytes) -> None:
        if len(raw) > self._budget:
            return
        self._num_bytes += len(raw) - len(self._held.pop(name, b""))
        self._held[name] = raw
        while self._num_bytes > self._budget:
            _, oldest = self._held.popitem(last=False)
            self._num_bytes -= len(oldest)

    def get(self, name: str) -> bytes | None:
        raw = self._held.get(name)
        if raw is not None:
            self._held.move_to_end(name)
        return raw


class RayWorker:
    """The actor. Every answer is a pair of a JSON object and a payload's bytes; the object says what is wrong.

    Args:
        held_bytes: Budget of the payloads that are kept.
        load: Loads the model; see :func:`hypic_agents.runtime.workers.serve.load_compute`.
    """

    def __init__(self, held_bytes: int, load: Load = load_compute) -> None:
        self._load = load
        self._shelf = Shelf(held_bytes)
        self._prefixes: dict[str, Any] = {}
        self._compute: Compute | None = None
        self._device = "cpu"
        self._job_id = -1
        self._cancelled: set[int] = set()

    def load(self, spec: dict[str, Any]) -> str:
        """Load the model; returns why it cannot work, or nothing."""
        try:
            self._compute, self._device = self._load(WorkerSpec(**spec), self._check)
        except Exception as error:  # noqa: BLE001  the pool must hear why, in words: errors would travel as pickles
            return _words(error)
        return ""

    def keep(self, name: str, raw: bytes, names: list[str]) -> None:
        """Hold a prefix for the jobs that follow, and let go of those that are not among ``names``."""
        from hypic_agents.runtime.workers.contract import DamagedPayload
        from hypic_agents.runtime.workers.wire import decode_payload

        self._prefixes = {one: held for one, held in self._prefixes.items() if one in names}
        try:
            self._prefixes[name] = decode_payload(bytearray(raw), self._device)
        except DamagedPayload:
            return  # it is missing when its job comes, which then fails by name

    def build(self, job_id: int, raw: bytes, prefix: str | None, name: str) -> tuple[str, bytes]:
        """Compute a job, and keep its payload under ``name`` unless that is empty."""
        from hypic_agents.runtime.workers.wire import decode_job, encode_payload, to_bytes

        self._job_id = job_id
        try:
            assert self._compute is not None, "no model is loaded"
            payload, seconds = self._compute(decode_job(bytearray(raw), self._prefixes.get(prefix or "")))
            self._check()
            made = bytes(to_bytes(encode_payload(payload)))
        except Cancelled:
            return json.dumps({"problem": "it was cancelled"}), b""
        except Exception as error:  # noqa: BLE001  one job's failure must not end the worker
            return json.dumps({"problem": _words(error)}), b""
        finally:
            self._cancelled.discard(job_id)
        if name:
            self._shelf.put(name, made)
        return json.dumps({"seconds": seconds}), made

    def cancel(self, job_id: int) -> None:
        """Stop a job between two layers, or before it begins."""
        if job_id >= self._job_id:
            self._cancelled.add(job_id)

    def fetch(self, name: str) -> tuple[str, bytes]:
        """A payload that was built before, if it is still here."""
        raw = self._shelf.get(name)
        if raw is None:
            return json.dumps({"problem": "it is not held any more"}), b""
        return json.dumps({"seconds": 0.0}), raw

    def _check(self) -> None:
        if self._job_id in self._cancelled:
            raise Cancelled


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
