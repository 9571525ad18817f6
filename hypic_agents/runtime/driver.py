"""One thread that runs an engine's loop for everyone who waits for answers.

Callers hand over jobs and hear of them through the jobs' sinks; nobody but this thread computes, so an event loop never
blocks and no token costs a change of thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from hypic_agents.errors import EngineClosed, HypicError
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.jobs import Event, Job
from hypic_agents.runtime.task import Task

T = TypeVar("T")
LOG = logging.getLogger("hypic_agents.driver")

_CLOSED = "the engine was closed; create a new one"


class EngineDriver:
    """Runs one engine. The thread starts with the first command and sleeps while there is nothing to do."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._jobs: list[Job] = []
        self._tasks: list[Task] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def submit(self, job: Job) -> None:
        """Queue a job; its sink hears of everything that follows, refusals included.

        Raises:
            EngineClosed: The driver was stopped.
        """
        self._command(lambda: self._admit(job))

    def cancel(self, job: Job) -> None:
        """Stop a job; its sink hears no more of it. Does nothing to one that ended."""
        job.cancelled = True
        if not self._stopped:
            self._commands.put(lambda: self._drop(job))

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run a function between two steps.

        Raises:
            EngineClosed: The driver was stopped.
        """
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except Exception as error:  # noqa: BLE001  it belongs to whoever waits
                    future.set_exception(error)

        self._command(run)
        return future

    def call_stepwise(self, make: Callable[[], Generator[None, None, T]]) -> Future[T]:
        """Run a generator, one step of it between two steps of the engine; the future gets what it returns.

        Raises:
            EngineClosed: The driver was stopped.
        """
        task = Task(make)
        self._command(lambda: self._tasks.append(task))
        return task.future

    def stop(self) -> None:
        """Fail what runs, end the thread, close the engine. Safe to call again, and from any thread."""
        with self._lock:
            first, self._stopped = not self._stopped, True
        if not first:
            return
        self._commands.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self.engine.close()

    def _command(self, command: Callable[[], None]) -> None:
        with self._lock:
            if self._stopped:
                raise EngineClosed(_CLOSED)
            self._commands.put(command)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"hypic {self.engine.name}", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            # Sleep only while no job runs; else take the commands that lie there and go on.
            while not (self._jobs or self._tasks) or not self._commands.empty():
                command = self._commands.get()
                if command is None:
                    self._fail_all(lambda: EngineClosed(_CLOSED))
                    for task in self._tasks:
                        task.fail(EngineClosed(_CLOSED))
                    return
                command()
            if self._jobs:
                self._step()
            self._tasks = [task for task in self._tasks if not task.step()]
            if self._tasks and not self._jobs:
                self.engine.wait()

    def _step(self) -> None:
        try:
            self.engine.step()
        except Exception as error:  # noqa: BLE001  a defect of the loop must reach those who wait for it
            self._fail_all(partial(HypicError, f"the engine failed: {type(error).__name__}: {error}"))
        self._jobs = [job for job in self._jobs if not self._deliver(job)]

    def _admit(self, job: Job) -> None:
        if job.cancelled:
            return
        try:
            job.request = self.engine.submit(job.prompt, job.sampling, job.policy)
        except Exception as error:  # noqa: BLE001  it belongs to whoever waits
            self._tell(job, Event(error=error))
        else:
            self._jobs.append(job)

    def _drop(self, job: Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
            self._cancel(job)

    def _deliver(self, job: Job) -> bool:
        """Tell what is new; True at the end."""
        request = job.request
        assert request is not None
        done = request.done  # read before the text, so that nothing can come behind the end
        text = ""
        while request.pieces:
            text += request.pieces.pop(0)
        ids = tuple(request.token_ids[job.num_sent :])
        completion, error = request.completion, request.error
        if completion is not None and completion.finish_reason == "cancelled":
            return self._tell(job, Event(error=EngineClosed(_CLOSED)))
        if done or (text and job.streams):
            job.num_sent += len(ids)
            return self._tell(job, Event(text, ids, completion, error)) or done
        return False

    def _tell(self, job: Job, event: Event) -> bool:
        """Pass an event on; True if that was the last one, or nobody listens any more."""
        try:
            job.sink(event)
        except RuntimeError:  # the event loop of the caller is closed
            self._cancel(job)
            return True
        return event.last

    def _fail_all(self, make: Callable[[], HypicError]) -> None:
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            self._cancel(job)
            self._tell(job, Event(error=make()))

    def _cancel(self, job: Job) -> None:
        try:
            if job.request is not None:
                self.engine.cancel(job.request)
        except Exception:
            LOG.exception("a request was given up, and what it held may stay")
