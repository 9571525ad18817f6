"""Ray itself: found, joined or started, and shut down again where it was started here."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from hypic_agents.errors import HypicError, InvalidInput

_ROOT = Path(__file__).resolve().parents[3]
_CPU_WORKERS = 4


@dataclass(slots=True)
class _Connection:
    """What was started or joined here, and by how many sessions it is used."""

    is_local: bool
    users: int = 0


# One a process, as Ray has it.
_OURS: WeakKeyDictionary[Any, _Connection] = WeakKeyDictionary()


def require_ray() -> Any:
    """The module ``ray``.

    Raises:
        InvalidInput: it is not installed.
    """
    if find_spec("ray") is None:
        raise InvalidInput("workers on Ray need the extra 'ray': pip install 'hypic-agents[ray]'")
    import ray

    return ray


class RaySession:
    """A connection to a cluster.

    A program that is connected already keeps its connection, whatever ``address`` says. Without an address, a cluster
    of this machine alone is started; no other program can see it, and it ends with the last session that uses it.

    Args:
        address: Of a running cluster, as ``ray.init`` takes it; None starts one here.
        num_workers: Actors that are wanted; None leaves the choice to :attr:`num_workers`.
        init: Further arguments of ``ray.init`` where a cluster is started here.
        ray: The module, or what stands for it.

    Raises:
        HypicError: Ray cannot be started.
        InvalidInput: Ray is not installed, or no cluster answers at ``address``.
    """

    def __init__(
        self, address: str | None, num_workers: int | None, *, init: dict[str, Any] | None = None, ray: Any = None
    ) -> None:
        self.ray: Any = require_ray() if ray is None else ray
        if not self.ray.is_initialized():
            self._connect(address, num_workers, init or {})
            _OURS[self.ray] = _Connection(is_local=address is None)
        self._connection = _OURS.get(self.ray)
        if self._connection is not None:
            self._connection.users += 1
        resources = self.ray.cluster_resources()
        self.num_gpus = int(resources.get("GPU", 0))
        # A model's copy a worker: on CPUs, memory ends long before the cores of a large cluster do.
        self.num_workers = num_workers or self.num_gpus or max(1, min(_CPU_WORKERS, int(resources.get("CPU", 1))))

    @property
    def is_connected(self) -> bool:
        """False once anybody in this process has shut Ray down."""
        return bool(self.ray.is_initialized())

    def environment(self) -> dict[str, str]:
        """Variables that workers need to find this package: elsewhere it has to be installed."""
        if self._connection is None or not self._connection.is_local:
            return {}
        return {"PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}

    def close(self) -> None:
        """Shut Ray down if it was started, or joined, here, and no other session uses it any more."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.users -= 1
        if connection.users == 0 and _OURS.get(self.ray) is connection:
            del _OURS[self.ray]
            if self.is_connected:
                self.ray.shutdown()

    def _connect(self, address: str | None, num_workers: int | None, init: dict[str, Any]) -> None:
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address is not None:
                self.ray.init(address=address, **quiet)
                return
            # A library does not report its user's usage to anybody.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cores = os.cpu_count() or 1
            given = {"num_cpus": max(cores, num_workers or 1), "include_dashboard": False} | init
            self.ray.init(address="local", **given, **quiet)
        except Exception as error:  # Ray has no error of its own for this, and raises its base too
            self.ray.shutdown()
            if address is None:
                raise HypicError(f"Ray cannot be started here: {error}") from error
            raise InvalidInput(
                f"no Ray cluster answers at {address!r}: {error}; start one with 'ray start --head' and give the "
                "address that it prints"
            ) from error


def first_line(error: BaseException) -> str:
    """An error of Ray in a few words: its own texts are long."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]
