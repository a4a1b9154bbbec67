"""A spool: events that a client could not send yet, in a directory of its own, safe against `kill -9` and power cuts.

    add ─▶ rows, in order ─▶ next_group: some of the first get a position ─▶ sent ─▶ done: they are gone

A *group* is what is sent at once under one number, its position. It is written down before it is sent, so after a crash
the same events go under the same number, and the node stores them once. What the node refuses for good is set aside,
never deleted.

Promised: when a method returns, what it did is on stable storage, all or nothing. One process has a spool at a time.
Not promised: anything to two threads at once; who calls sees to that.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

from tocsin.errors import JournalDamagedError, JournalError, JournalFullError, JournalLockedError, OptionError
from tocsin.journal import durably
from tocsin.journal.lockfile import LockFile

__all__ = ["MAX_BYTES", "MAX_EVENTS", "Group", "Row", "Spool", "open_spool"]

MAX_BYTES = 256 * 1024 * 1024
"""What a spool holds if nothing else is said."""
MAX_EVENTS = 1_000_000
_GROUP_EVENTS, _GROUP_BYTES = 1_000, 4 * 1024 * 1024  # sent at once, unless one publication has more
_VERSION = 1
_SCHEMA = """
    CREATE TABLE about (version INTEGER NOT NULL, writer TEXT NOT NULL, position INTEGER NOT NULL);
    CREATE TABLE waiting (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        position INTEGER,              -- of the group it was sent in; null: it was not
        count INTEGER NOT NULL,
        events BLOB NOT NULL           -- MessagePack: a list of packed rows
    );
    CREATE TABLE refused (id INTEGER PRIMARY KEY, error TEXT NOT NULL, count INTEGER NOT NULL, events BLOB NOT NULL);
"""

_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(list[Raw]).decode


class Row(msgspec.Struct, frozen=True):
    """What was published at once: how many events, and they themselves."""

    count: int
    events: bytes

    @classmethod
    def of(cls, parts: Sequence[Raw]) -> Row:
        """The row of packed events."""
        return cls(len(parts), _pack(parts))


class Group(NamedTuple):
    """What is sent at once, and under which number; `rows` says how many publications it is made of."""

    position: int
    parts: list[Raw]
    rows: int


class Spool:
    """The spool in a directory."""

    def __init__(self, directory: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> None:
        """Open it, and make it if it is not there. It is to hold so many bytes at most; who adds sees to that.

        Raises:
            JournalLockedError: another process has it, or another bus in this one.
            JournalDamagedError: the file is no spool, or is damaged.
            JournalError: the directory cannot be used.
        """
        self.path, self.max_bytes = os.path.join(os.fspath(directory), "spool.db"), max_bytes
        try:
            os.makedirs(directory, exist_ok=True)
            self._lock = LockFile(self.path)
        except JournalLockedError as error:
            raise JournalLockedError(
                f"the spool {self.path} is used by {error.holder}",
                path=self.path,
                holder=error.holder,
                help="give every client a directory of its own",
            ) from None
        except OSError as error:
            raise JournalError(
                f"{self.path} cannot be used: {error.strerror}", path=self.path, help="give a directory"
            ) from None
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._open()
        except sqlite3.DatabaseError as error:
            self._lock.release()
            raise JournalDamagedError(
                f"{self.path} is no spool, or damaged: {error}", path=self.path, help="move it away"
            ) from None
        except BaseException:
            self._lock.release()
            raise

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'about'").fetchone():
            with _Change(self._db, self.path):
                for statement in _SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.execute("INSERT INTO about VALUES (?, ?, 0)", (_VERSION, secrets.token_hex(16)))
            durably.sync_directory(os.path.dirname(self.path))
        version, writer, position = self._db.execute("SELECT version, writer, position FROM about").fetchone()
        if version != _VERSION:
            raise JournalError(f"{self.path} is of version {version}", path=self.path, help="use a newer Tocsin")
        self._position: int = position
        self.writer: str = writer
        """The name under which it numbers what it sends."""
        waiting = self._db.execute("SELECT coalesce(sum(count), 0), coalesce(sum(length(events)), 0) FROM waiting")
        self.events: int
        """How many events wait."""
        self.bytes: int
        """Their size."""
        self.events, self.bytes = waiting.fetchone()

    @property
    def name(self) -> str:
        """A name for its user, the same whenever it is opened."""
        return f"spool-{self.writer[:12]}"

    def add(self, rows: Sequence[Row]) -> None:
        """Keep these behind all that wait.

        Raises:
            JournalFullError: the disk has no room; nothing was kept.
        """
        with _Change(self._db, self.path):
            values = [(row.count, row.events) for row in rows]
            self._db.executemany("INSERT INTO waiting (count, events) VALUES (?, ?)", values)
        self.events += sum(row.count for row in rows)
        self.bytes += sum(len(row.events) for row in rows)

    def next_group(self) -> Group | None:
        """What is to be sent next: what was sent and not answered, else the first that wait, under a new number.

        Raises:
            JournalDamagedError: the file has changed under us, or what it says is no event.
        """
        try:
            return self._next_group()
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise _typed(error, self.path) from None

    def _next_group(self) -> Group | None:
        found = self._db.execute("SELECT min(position) FROM waiting").fetchone()[0]
        if found is None:
            last = self._last_of_group()
            if last is None:
                return None
            with _Change(self._db, self.path):
                found = self._number("id <= ?", last)
        rows = self._db.execute("SELECT events FROM waiting WHERE position = ? ORDER BY id", (found,)).fetchall()
        return Group(found, [part for (events,) in rows for part in _unpack(events)], len(rows))

    def _last_of_group(self) -> int | None:
        last, events, size = None, 0, 0
        for id, count, length in self._db.execute("SELECT id, count, length(events) FROM waiting ORDER BY id"):
            events, size = events + count, size + length
            if last is not None and (events > _GROUP_EVENTS or size > _GROUP_BYTES):
                break
            last = id
        return last

    def _number(self, which: str, value: int) -> int:
        self._position += 1
        self._db.execute("UPDATE about SET position = ?", (self._position,))
        self._db.execute(f"UPDATE waiting SET position = ? WHERE {which}", (self._position, value))
        return self._position

    def done(self, position: int) -> None:
        """The node has a group."""
        with _Change(self._db, self.path):
            gone = self._take_out(position)
        self.events -= gone[0]
        self.bytes -= gone[1]

    def split(self, position: int) -> None:
        """The node refuses a group: send each publication of it by itself, under a number that was not used."""
        with _Change(self._db, self.path):
            ids = self._db.execute("SELECT id FROM waiting WHERE position = ? ORDER BY id", (position,)).fetchall()
            for (id,) in ids:
                self._number("id = ?", id)

    def refuse(self, position: int, error: str) -> None:
        """The node will never take this publication: set it aside."""
        with _Change(self._db, self.path):
            self._db.execute(
                "INSERT INTO refused SELECT id, ?, count, events FROM waiting WHERE position = ?", (error, position)
            )
            gone = self._take_out(position)
        self.events -= gone[0]
        self.bytes -= gone[1]

    def _take_out(self, position: int) -> tuple[int, int]:
        events, size = self._db.execute(
            "SELECT coalesce(sum(count), 0), coalesce(sum(length(events)), 0) FROM waiting WHERE position = ?",
            (position,),
        ).fetchone()
        self._db.execute("DELETE FROM waiting WHERE position = ?", (position,))
        return events, size

    def refused(self) -> list[tuple[str, list[Raw]]]:
        """What was set aside: why, and the packed events."""
        rows = self._db.execute("SELECT error, events FROM refused ORDER BY id").fetchall()
        return [(error, _unpack(events)) for error, events in rows]

    def close(self) -> None:
        """Let others use it."""
        self._db.close()
        self._lock.release()


def open_spool(directory: str | os.PathLike[str], max_bytes: int | None) -> Spool:
    """Open the spool in a directory.

    Raises:
        OptionError: the size means nothing.
        JournalError: see `Spool`.
    """
    if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 1):
        raise OptionError(f"spool_bytes is {max_bytes!r}", field="spool_bytes", help="give a whole number from 1")
    return Spool(directory, MAX_BYTES if max_bytes is None else max_bytes)


class _Change:
    """A transaction: all of it, or nothing and a typed error."""

    def __init__(self, db: sqlite3.Connection, path: str) -> None:
        self._db, self._path = db, path

    def __enter__(self) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise _typed(error, self._path) from None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._db.execute("COMMIT")
        except sqlite3.Error as failure:
            error = failure
        if error is None:
            return
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise _typed(error, self._path) from None


def _typed(error: Exception, path: str) -> JournalError:
    if isinstance(error, sqlite3.OperationalError):
        return JournalFullError(f"the spool {path} cannot be used: {error}", path=path, help="make room on the disk")
    return JournalDamagedError(f"{path} is damaged: {error}", path=path, help="move it away")
