"""Two connections to one index, one that asks and one that changes, and how both survive its damage. No torch."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import TypeVar

from hypic_agents.errors import StoreUnavailable
from hypic_agents.runtime.cache.index import Index, delete_index, is_damage

LOG = logging.getLogger("hypic_agents.store")
T = TypeVar("T")


class Connection:
    """Runs operations on the index, one at a time.

    If the index turns out to be damaged it is made anew and the operation is tried once more; if it is another one now
    than it was, that one is opened.

    Args:
        path: The database.
        adopt: Gives every file its row in a new index; called inside a transaction.

    Raises:
        StoreUnavailable: the database cannot be opened.
    """

    def __init__(self, path: Path, adopt: Callable[[Index], None]) -> None:
        self._path = path
        self._adopt = adopt
        self._lock = RLock()
        self._index = self._open()

    def do(self, operation: Callable[[Index], T]) -> T:
        """The result of ``operation``.

        Raises:
            StoreUnavailable: the database is busy, full, closed or out of reach.
        """
        with self._lock:
            try:
                if not self._index.is_current:
                    self._index.close()
                    self._index = self._open()
                return operation(self._index)
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise StoreUnavailable(f"the store at {self._path.parent} cannot be used now: {error}") from error
                self._index.close()
                self._index = self._made_anew(error, self._index)
            try:
                return operation(self._index)
            except sqlite3.Error as error:
                raise StoreUnavailable(f"the store at {self._path.parent} cannot be used: {error}") from error

    def close(self) -> None:
        with self._lock:
            self._index.close()

    def _open(self) -> Index:
        try:
            index = Index(self._path)
            if index.is_new:
                with index.change():
                    self._adopt(index)
            return index  # noqa: TRY300  the whole of it may fail
        except sqlite3.Error as error:
            if is_damage(error):
                return self._made_anew(error, None)
            raise StoreUnavailable(f"the store at {self._path.parent} cannot be opened: {error}") from error

    def _made_anew(self, error: sqlite3.Error, broken: Index | None) -> Index:
        LOG.warning("the index %s is damaged (%s) and made anew from the files", self._path, error)
        with _exclusive(self._path.with_name("rebuild.lock")):
            if broken is None or broken.is_current:  # else another process was faster
                delete_index(self._path)
            try:
                index = Index(self._path)
                with index.change():
                    self._adopt(index)
            except sqlite3.Error as again:
                raise StoreUnavailable(f"the store at {self._path.parent} cannot be made anew: {again}") from again
        return index


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
