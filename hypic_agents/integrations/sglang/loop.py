"""One event loop in a thread of its own, so that one pool of connections serves every thread and every event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from hypic_agents.errors import EngineClosed

T = TypeVar("T")

_CLOSED = "the backend was closed; create a new one"


@dataclass(frozen=True, slots=True)
class _News(Generic[T]):
    """An item of a stream, or its end: ``error`` is why, None where it simply ended."""

    items: tuple[T, ...] = ()
    error: BaseException | None = None


class LoopThread:
    """Runs coroutines for callers of any kind. The thread starts with the first one and does not keep Python alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closing = False

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine. Cancelling the future cancels it.

        Raises:
            EngineClosed: The loop was stopped, or belongs to the process this one was forked from.
        """
        try:
            loop = self._running()
        except EngineClosed:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(self._guarded(coroutine), loop)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait; whatever interrupts the wait cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def acall(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """As :meth:`call`, for the caller's event loop."""
        return await asyncio.wrap_future(self.submit(coroutine))

    def iterate(self, source: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """The items of ``source``. Closing the generator closes ``source``."""
        news: SimpleQueue[_News[T]] = SimpleQueue()
        future = self.submit(_pump(source, news.put))
        try:
            while True:
                one = news.get()
                yield from one.items
                if not one.items:
                    if one.error is not None:
                        raise one.error
                    return
        finally:
            future.cancel()

    async def aiterate(self, source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """As :meth:`iterate`, for the caller's event loop. Cancelling the caller's task closes ``source``."""
        loop = asyncio.get_running_loop()
        news: asyncio.Queue[_News[T]] = asyncio.Queue()

        def tell(one: _News[T]) -> None:
            loop.call_soon_threadsafe(news.put_nowait, one)

        future = self.submit(_pump(source, tell))
        try:
            while True:
                one = await news.get()
                for item in one.items:
                    yield item
                if not one.items:
                    if one.error is not None:
                        raise one.error
                    return
        finally:
            future.cancel()

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Cancel what runs, run ``last``, end the thread. Safe to call again, and from any thread."""
        with self._lock:
            first, self._closing = not self._closing, True
            loop, thread = self._loop, self._thread
        if not first or loop is None or thread is None or self._pid != os.getpid():
            return
        if thread is threading.current_thread():  # where the last reference to a backend may go
            threading.Thread(target=_stop, args=(loop, thread, last), daemon=True).start()
        else:
            _stop(loop, thread, last)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closing:
                raise EngineClosed(_CLOSED)
            if self._pid != os.getpid():
                raise EngineClosed("the backend was made before this process was forked; create one here")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="hypic sglang", daemon=True)
                self._thread.start()
            return self._loop

    async def _guarded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return await coroutine
        except asyncio.CancelledError:
            if self._closing:
                raise EngineClosed(_CLOSED) from None
            raise


async def _pump(source: AsyncGenerator[T, None], tell: Callable[[_News[T]], None]) -> None:
    try:
        async with aclosing(source) as items:
            async for item in items:
                tell(_News((item,)))
    except asyncio.CancelledError:
        _tell_end(tell, _News(error=EngineClosed(_CLOSED)))
        raise
    except BaseException as error:  # noqa: BLE001  it belongs to whoever reads the stream
        _tell_end(tell, _News(error=error))
    else:
        _tell_end(tell, _News())


def _tell_end(tell: Callable[[_News[T]], None], end: _News[T]) -> None:
    try:
        tell(end)
    except RuntimeError:  # the event loop of the reader is closed
        return


def _stop(
    loop: asyncio.AbstractEventLoop, thread: threading.Thread, last: Callable[[], Coroutine[Any, Any, None]] | None
) -> None:
    asyncio.run_coroutine_threadsafe(_end(last), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _end(last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    if last is not None:
        await last()
