"""The contract of cold prefill: who owns a build when, and which verb moves it. No torch.

::

               submit                     send (an idle worker)
    builder -----------> queued at a pool ----------------------> at a worker
                          |    ^     |                             |       |
                   cancel |    |     | not worth the hop,          |       | result, payload loads
                          |    |     | no worker left,             |       '-----------------------> built
                          v    |     | no retry left               |                                    ^
                       dropped |     '----> computed here ---------|------------------------------------'
                               |                                   |
                               '--- worker lost, late, refused, or damaged payload (one retry is spent)

Two levels. A :class:`ColdPrefillPool` is what the engine sees: jobs in, payloads out, whatever happens to workers. A
:class:`WorkerGroup` is what differs between processes and machines: it carries one job to one worker and says what
became of it; ``workers.dispatch`` makes a pool of it, with one queue, one cost model and one rule for failures.

Conservation: every submitted job is cancelled, or comes out of ``poll`` exactly once, with a payload or an error. A
worker computes at most one job; one that it has computed may still be on its way. Nothing is left of a closed pool: no
process, actor, file descriptor or shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hypic_agents.runtime.cache.entry import Payload

Place = Literal["local", "worker"]


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What the workers of a group are.

    Attributes:
        model: Name or path, as ``load_model`` takes it; must mean the same where the worker runs.
        fingerprint: The fingerprint that the loaded model must have.
        num_workers: How many; None lets the group choose (one a GPU, else one a core).
        model_dtype, device: As in ``EngineConfig``.
        threads: CPU threads of each worker; None shares out the cores.
        start_s: Seconds a worker may take to load its model.
        max_restarts: How often in a row each worker is started again without having built anything.
        backoff_s: Pause before the first restart; it doubles with every further one.
    """

    model: str
    fingerprint: str
    num_workers: int | None = None
    model_dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
    start_s: float = 300.0
    max_restarts: int = 3
    backoff_s: float = 0.5

    @property
    def names_gpu(self) -> bool:
        """Whether ``device`` is one certain GPU, which holds the model of one worker unless more are asked for."""
        return self.device.startswith("cuda:")


class DamagedPayload(Exception):
    """A payload arrived that is not what its worker made; the message says where it shows."""


@dataclass(frozen=True, slots=True, eq=False)
class BuildJob:
    """One entry to compute: all that a worker needs besides the model. Compared by identity.

    Attributes:
        id: Unique in its pool.
        token_ids: Tokens up to the interior's end.
        head: Where the interior begins in ``token_ids``.
        map_from: Where the affine map begins.
        is_prefix: The state itself is kept (a checkpoint), no map.
        prefix_ids: Tokens it is built behind; empty if it is built alone.
        prefix: The checkpoint behind ``prefix_ids``; None if they are empty or ``prefix_live``.
        prefix_live: That checkpoint is still being built, so ``prefix_ids`` are computed here as well.
        owner: Whose job it is: idle workers are shared out evenly among owners.
        hold: Under which name workers may keep the payload to serve it again; empty: not at all. Names the model, the
            scope, the recipe, the tokens and the store's epoch, so that nothing crosses a scope or outlives an
            invalidation.
    """

    id: int
    token_ids: tuple[int, ...] = field(repr=False)
    head: int
    map_from: int
    is_prefix: bool = False
    prefix_ids: tuple[int, ...] = field(default=(), repr=False)
    prefix: Payload | None = field(default=None, repr=False)
    owner: int = 0
    hold: str = ""
    prefix_live: bool = False

    @property
    def num_tokens(self) -> int:
        """Tokens to compute."""
        return len(self.token_ids) + (len(self.prefix_ids) if self.prefix_live else 0)

    @property
    def context(self) -> int:
        """Tokens in front of the computed ones."""
        return 0 if self.prefix_live else len(self.prefix_ids)


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """What became of a job.

    Attributes:
        job: The job.
        payload: What it made; None exactly if ``error`` is set.
        place: Where the payload was computed in the end.
        build_s: Seconds that the computation took, without transport and waiting.
        retries: How often it was begun again.
        problems: Why, once for each retry, in words for people.
        error: No place could compute it, and this is why.
    """

    job: BuildJob
    payload: Payload | None
    place: Place
    build_s: float
    retries: int = 0
    problems: tuple[str, ...] = ()
    error: Exception | None = None


class ColdPrefillPool(Protocol):
    """Computes jobs. ``submit``, ``poll``, ``cancel`` and ``close`` are called by one thread at a time."""

    @property
    def spare(self) -> int:
        """How many workers are idle while nothing waits for one: what they compute now takes nothing from builds."""
        ...

    def submit(self, jobs: Sequence[BuildJob]) -> None:
        """Queue jobs; returns without waiting for any."""
        ...

    def poll(self) -> list[Built]:
        """Move on, and take what is finished since the last call. Never waits for a worker.

        Jobs that are computed here are computed in this call.
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Return once ``poll`` may have news, at the latest after ``timeout_s``. Any thread, any number of them."""
        ...

    @property
    def settled(self) -> bool:
        """Whether every worker is ready or given up, as far as ``warm_up`` or ``poll`` has heard."""
        ...

    def warm_up(self, timeout_s: float) -> int:
        """Wait until every worker is ready or given up; returns how many are. 0 where nothing but this process works.

        Nothing needs it: before a worker is ready, its jobs are computed here.
        """
        ...

    def cancel(self, job_ids: Sequence[int]) -> None:
        """Forget jobs; they never come out of ``poll``. Unknown ids are ignored."""
        ...

    def close(self) -> None:
        """End all workers and let go of everything. Closing twice does nothing more."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class WorkerResult:
    """What became of a job that a worker held.

    Attributes:
        worker: Index of the worker.
        job_id: The job.
        load: Fetches and checks the payload, once. Raises :class:`DamagedPayload`. None if there is none.
        build_s: Seconds of the worker's computation.
        problem: Why there is no payload, in words for people; empty if there is one.
        lost: The worker is gone; the group replaces it when it sees fit.
    """

    worker: int
    job_id: int
    load: Callable[[], Payload] | None
    build_s: float = 0.0
    problem: str = ""
    lost: bool = False


class WorkerGroup(Protocol):
    """Workers of one kind, on which the same model is loaded. Called by one thread at a time, ``wait`` by any."""

    @property
    def idle(self) -> tuple[int, ...]:
        """Indices of workers that are ready and compute nothing, as far as ``poll`` has heard.

        One whose last payload is still on its way may be among them; one that starts or recovers is not.
        """
        ...

    @property
    def alive(self) -> int:
        """Workers that are ready, busy or expected back; at 0 the group will never compute again."""
        ...

    @property
    def trouble(self) -> str:
        """Why the last worker was lost or given up, in words for people; empty if none was."""
        ...

    def send(self, worker: int, job: BuildJob) -> None:
        """Give an idle worker a job. Never waits. A worker that cannot take it is lost, as ``poll`` then says."""
        ...

    def poll(self) -> list[WorkerResult]:
        """News since the last call: one for each job that was sent and not abandoned. Never waits.

        Restarts lost workers.
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Return once ``poll`` may have news, at the latest after ``timeout_s``."""
        ...

    def cancel(self, worker: int, job_id: int) -> None:
        """A job that was sent to this worker is not wanted any more; ``poll`` may tell of it without a payload."""
        ...

    def abandon(self, worker: int) -> None:
        """End a worker that is late or lies, whatever it does; ``poll`` tells nothing of its jobs. Restarted later.

        Does nothing to a worker that is lost already.
        """
        ...

    def close(self) -> None:
        """End all workers and let go of everything. Closing twice does nothing more."""
        ...
