"""Mending a damaged journal: what cannot be read is taken out of the way, and nothing happens silently.

A torn tail is cut; damage in the middle only with `force`, since readers then miss events that others behind it may
refer to. What is taken out is first copied to `<path>.removed-<time>`, an SQLite file with the rows as they were.

Offsets are not given out again: an empty block (format `x`) keeps the place of what was taken, reads as no events, and
`check` lists it. A writer's positions whose answers lie in a tail that was cut are forgotten, so that the writer may
send those batches again.
"""

from __future__ import annotations

import os
import sqlite3
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from tocsin.errors import JournalError
from tocsin.journal.blocks import LOST, seal
from tocsin.journal.check import Damage, check
from tocsin.journal.draft import unpack_offsets
from tocsin.journal.faults import translated
from tocsin.journal.lockfile import LockFile
from tocsin.journal.migrations import check_version

__all__ = ["Repair", "repair"]


class Repair(msgspec.Struct):
    """What `repair` did."""

    path: str
    removed: list[Damage] = []
    """What was taken out."""
    left: list[Damage] = []
    """Damage in the middle that was left: it needs `force`."""
    copy: str | None = None
    """The file with the rows that were removed."""
    writers: list[tuple[str, int]] = []
    """Positions that were forgotten: their batches may be sent again."""

    def lines(self) -> list[str]:
        """The same for people."""
        found = [f"removed: {each}" for each in self.removed]
        found += [f"left (use --force to remove it): {each}" for each in self.left]
        found += [f"forgotten: position {position} of writer {name!r}" for name, position in self.writers]
        if self.copy is not None:
            found.append(f"the removed rows are kept in {self.copy}")
        return found or ["nothing had to be removed"]


def repair(path: str | os.PathLike[str], *, force: bool = False) -> Repair:
    """Cut a torn tail; with `force`, take out damaged blocks in the middle too.

    Raises:
        JournalLockedError: the journal is open for writing.
        JournalError: there is no such file, or it is no journal, or SQLite itself cannot read it.
    """
    real = os.path.realpath(path)
    if not os.path.isfile(real):
        raise JournalError(f"there is no file {real}", path=real)
    lock = LockFile(real)
    try:
        with translated(real):
            db = sqlite3.connect(f"file:{quote(real)}?mode=rw", uri=True, isolation_level=None)
            try:
                check_version(db, real)
                db.execute("PRAGMA synchronous = FULL")
                return _repair(db, real, force)
            finally:
                db.close()
    finally:
        lock.release()


def _repair(db: sqlite3.Connection, path: str, force: bool) -> Repair:
    found = check(path).damaged
    done = Repair(path, [each for each in found if force or each.at_end])
    done.left = [each for each in found if each not in done.removed]
    if not done.removed:
        return done
    done.copy = _copy(db, path, done.removed)
    db.execute("BEGIN IMMEDIATE")
    try:
        for each in done.removed:
            db.execute("DELETE FROM blocks WHERE first BETWEEN ? AND ?", (each.first, each.last))
        for each in done.removed:
            arrived = _before(db, each.first)
            row = msgspec.structs.astuple(seal(LOST, each.first, each.last, (arrived, arrived), b""))
            db.execute("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        tail = min((each.first for each in done.removed if each.at_end), default=None)
        if tail is not None:
            done.writers = _forget(db, tail)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return done


def _copy(db: sqlite3.Connection, path: str, removed: list[Damage]) -> str:
    """Keep the rows as they are; a value that SQLite cannot read is kept as NULL."""
    base = name = f"{path}.removed-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    number = 1
    while os.path.exists(name):
        number += 1
        name = f"{base}-{number}"
    kept = sqlite3.connect(name, isolation_level=None)
    try:
        columns = [row[1] for row in db.execute("PRAGMA table_info(blocks)")]
        kept.execute(f"CREATE TABLE blocks ({', '.join(columns)}, reason)")
        kept.execute("BEGIN")
        for each in removed:
            rows = db.execute("SELECT first FROM blocks WHERE first BETWEEN ? AND ?", (each.first, each.last))
            for (first,) in rows.fetchall():
                values = [_value(db, column, first) for column in columns]
                kept.execute(f"INSERT INTO blocks VALUES ({'?, ' * len(columns)}?)", (*values, each.reason))
        kept.execute("COMMIT")
    finally:
        kept.close()
    return name


def _value(db: sqlite3.Connection, column: str, first: int) -> object:
    try:
        return db.execute(f"SELECT {column} FROM blocks WHERE first = ?", (first,)).fetchone()[0]
    except sqlite3.Error:
        return None


def _before(db: sqlite3.Connection, first: int) -> int:
    """Journal time at the end of the block before an offset, so that times still grow with the offset."""
    row = db.execute("SELECT arrived_last FROM blocks WHERE first < ? ORDER BY first DESC LIMIT 1", (first,)).fetchone()
    return int(row[0]) if row is not None else 0


def _forget(db: sqlite3.Connection, tail: int) -> list[tuple[str, int]]:
    """Forget the positions with answers in a tail that was cut."""
    forgotten = []
    for name, position, packed in db.execute("SELECT name, position, offsets FROM writers").fetchall():
        if max(unpack_offsets(packed), default=0) >= tail:
            db.execute("DELETE FROM writers WHERE name = ? AND position = ?", (name, position))
            forgotten.append((name, position))
    return forgotten
