"""Remote places that are slow, fail, cut and flip: an fsspec filesystem in memory, wrapped."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any
from uuid import uuid4

import fsspec

from hypic_agents.runtime.cache.breaker import Breaker
from hypic_agents.runtime.cache.bucket import Bucket
from hypic_agents.runtime.cache.memory import MemoryStore
from hypic_agents.runtime.cache.remote import RemoteTier
from hypic_agents.runtime.cache.remote_store import RemoteStore
from tests.runtime.cache.blobs import BlobCodec


class Faulty:
    """Passes calls on. ``fail`` says which raise, ``hang`` holds those of that name, ``spoil`` changes what is read."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs
        self.protocol = fs.protocol
        self.fail: Callable[[str], bool] = lambda name: False
        self.spoil: Callable[[bytes], bytes] = bytes
        self.hang: set[str] = set()
        self.go_on = Event()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name in self.hang:
                self.go_on.wait(30)
            if self.fail(name):
                raise ConnectionError(f"{name} was cut off")
            found = getattr(self._fs, name)(*args, **options)
            return self.spoil(found) if name == "cat_file" else found

        return call


def new_place() -> tuple[Any, str]:
    """A filesystem in memory, and an unused path in it."""
    return fsspec.filesystem("memory"), f"/{uuid4().hex}"


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class Machine:
    """One machine's store over a place that others use too. Its clock stands still unless it is moved."""

    def __init__(self, place: tuple[Any, str], *, local: Any = None, **options: Any) -> None:
        self.fs = Faulty(place[0])
        self.clock = Clock()
        timeout_s = options.pop("timeout_s", 10.0)
        breaker = Breaker(5.0, most_s=5.0, now=self.clock)
        self.tier = RemoteTier(
            Bucket(self.fs, place[1]), BlobCodec(), timeout_s=timeout_s, write_timeout_s=timeout_s, breaker=breaker
        )
        self.local = local if local is not None else MemoryStore(10_000)
        self.store = RemoteStore(self.local, self.tier, now=self.clock, **options)
