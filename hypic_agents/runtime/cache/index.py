"""The disk tier's index: a small SQLite database that several processes share. No torch.

It only says where to look. What a file holds is in the file, so the index can be made again from the files.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.invalidation import Invalidation
from hypic_agents.runtime.cache.rows import ROW_COLUMNS, Departure, IndexRow, read_info, read_row, row_sum

_BUSY_MS = 10_000
_KEPT_INVALIDATIONS = 1_000
_KEPT_DEPARTURES = 10_000
_NOT_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
    }
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    name TEXT PRIMARY KEY, draft TEXT NOT NULL, file_bytes INTEGER NOT NULL, info TEXT NOT NULL, sum TEXT NOT NULL,
    uses INTEGER NOT NULL, priority REAL NOT NULL, created REAL NOT NULL, used REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_priority ON entries (priority, used);
CREATE INDEX IF NOT EXISTS drafts ON entries (draft) WHERE draft != '';
CREATE TABLE IF NOT EXISTS invalidations (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, source_id TEXT, version_before TEXT, tenant TEXT, member TEXT
);
CREATE TABLE IF NOT EXISTS departures (
    name TEXT PRIMARY KEY, reason TEXT NOT NULL, info TEXT NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clock (
    one INTEGER PRIMARY KEY CHECK (one = 1), value REAL NOT NULL, generation INTEGER NOT NULL
);
INSERT OR IGNORE INTO clock VALUES (1, 0, abs(random() >> 16));
"""


class DamagedIndex(sqlite3.DatabaseError):
    """The database opens, and does not hold what it should."""


class Index:
    """One connection, used by one thread at a time. What changes rows belongs in :meth:`change`, which holds the lock
    of all processes.

    Attributes:
        generation: A number drawn when the database was made: another one means that its history is not this one's.
        is_new: It was made just now, and knows of no file.

    Raises:
        sqlite3.Error: from every method; see :func:`is_damage`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite would make it readable for all
        self._inode = path.stat().st_ino
        self.generation = 0
        self.is_new = False
        self._db = sqlite3.connect(path, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
        self._db.text_factory = lambda raw: raw.decode(errors="replace")  # a row's checksum tells
        try:
            self._db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            self._enter_wal()
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._check()
            with self.change():
                tables = self._number("SELECT COUNT(*) FROM sqlite_master WHERE name = 'clock'")
                self.is_new = tables == 0
                for statement in _SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self.generation = int(self._number("SELECT generation FROM clock"))
        except BaseException:
            self._db.close()
            raise

    def _enter_wal(self) -> None:
        """Readers then never wait for a writer. The change itself does not wait for others that open: try again."""
        for attempt in range(100):
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if is_damage(error) or attempt == 99:
                    raise
                time.sleep(0.02)
            else:
                return

    def _check(self) -> None:
        if self._db.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise DamagedIndex("the index fails its check")

    @property
    def is_current(self) -> bool:
        """Whether the file at the index's path is still the one that is open."""
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    @contextmanager
    def change(self) -> Iterator[None]:
        """A transaction that no other thread or process writes in; taken back if the body raises."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def find(self, name: str) -> IndexRow | None:
        found = self._db.execute(f"SELECT {ROW_COLUMNS} FROM entries WHERE name = ?", (name,)).fetchone()  # noqa: S608
        return read_row(*found) if found else None

    def rows(self) -> list[IndexRow]:
        """All rows, the first to leave first."""
        found = self._db.execute(f"SELECT {ROW_COLUMNS} FROM entries ORDER BY priority, used").fetchall()  # noqa: S608
        return [read_row(*each) for each in found]

    def drafts(self) -> list[IndexRow]:
        """Rows of files that are being written."""
        found = self._db.execute(f"SELECT {ROW_COLUMNS} FROM entries WHERE draft != ''").fetchall()  # noqa: S608
        return [read_row(*each) for each in found]

    def first_to_leave(self, num_bytes: int) -> list[IndexRow]:
        """The published rows that leave so that ``num_bytes`` are freed; all of them if that is not enough."""
        found = self._db.execute(
            f"SELECT {ROW_COLUMNS} FROM entries WHERE draft = '' ORDER BY priority, used"  # noqa: S608
        )
        rows: list[IndexRow] = []
        for each in found:
            if num_bytes <= 0:
                break
            rows.append(read_row(*each))
            num_bytes -= rows[-1].file_bytes
        found.close()
        return rows

    def held_bytes(self) -> int:
        return int(self._number("SELECT COALESCE(SUM(file_bytes), 0) FROM entries"))

    def num_entries(self) -> int:
        return int(self._number("SELECT COUNT(*) FROM entries WHERE draft = ''"))

    def put(self, row: IndexRow) -> None:
        """Add or replace a row."""
        assert row.info is not None
        info = row.info.to_json()
        values = (row.name, row.draft, row.file_bytes, info, row_sum(row.name, row.draft, row.file_bytes, info))
        self._db.execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, row.uses, row.priority, row.created, row.used),
        )

    def remove(self, row: IndexRow, reason: str) -> None:
        """Forget a row and remember why; a draft leaves no trace."""
        self._db.execute("DELETE FROM entries WHERE name = ?", (row.name,))
        if not row.draft:
            info = row.info.to_json() if row.info else ""
            self._db.execute(
                "INSERT OR REPLACE INTO departures VALUES (?, ?, ?, ?)", (row.name, reason, info, time.time())
            )
            self._db.execute(
                "DELETE FROM departures WHERE name IN (SELECT name FROM departures ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (_KEPT_DEPARTURES,),
            )

    def departures(self) -> list[Departure]:
        """What left, latest first."""
        found = self._db.execute("SELECT name, reason, info, at FROM departures ORDER BY at DESC").fetchall()
        return [Departure(name, reason, read_info(info), at) for name, reason, info, at in found]

    @property
    def clock(self) -> float:
        return self._number("SELECT value FROM clock")

    @clock.setter
    def clock(self, value: float) -> None:
        self._db.execute("UPDATE clock SET value = ?", (value,))

    def log(self, call: Invalidation | None) -> int:
        """Write down an invalidation for the other processes, None if it covers everything; returns its number."""
        done = self._db.execute(
            "INSERT INTO invalidations (source_id, version_before, tenant, member) VALUES (?, ?, ?, ?)",
            (call.source_id, call.version_before, call.tenant, call.group) if call is not None else (None,) * 4,
        )
        seq = int(done.lastrowid or 0)
        self._db.execute("DELETE FROM invalidations WHERE seq <= ?", (seq - _KEPT_INVALIDATIONS,))
        return seq

    def last_seq(self) -> int:
        """Number of the latest invalidation; 0 if there was none."""
        return int(self._number("SELECT COALESCE(MAX(seq), 0) FROM invalidations"))

    def invalidations_after(self, seq: int) -> list[Invalidation] | None:
        """Those behind number ``seq``, oldest first; None if one covers everything, or may, being forgotten."""
        found = self._db.execute(
            "SELECT seq, source_id, version_before, tenant, member FROM invalidations WHERE seq > ? ORDER BY seq",
            (seq,),
        ).fetchall()
        if found and found[0][0] != seq + 1:
            return None
        try:
            return [Invalidation(*each[1:]) for each in found]
        except InvalidInput:  # a row without conditions, or one that was never written like this
            return None

    def _number(self, query: str) -> float:
        found = self._db.execute(query).fetchone()
        if found is None or not isinstance(found[0], (int, float)):
            raise DamagedIndex(f"no number where one should be: {query}")
        return found[0]

    def close(self) -> None:
        self._db.close()


def delete_index(path: Path) -> None:
    """Remove a database and what SQLite keeps beside it."""
    for each in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        each.unlink(missing_ok=True)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the database is broken, rather than busy, full, out of reach or closed."""
    if isinstance(error, DamagedIndex):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF not in _NOT_DAMAGE
