"""The tables, as named steps in order: a new file takes all of them, an old one those it lacks.

`PRAGMA user_version` counts the steps a file has taken, `PRAGMA application_id` says that it is ours. A step and its
count are one transaction, so a crash leaves the file before or after it. A step that has been released is never
changed; add another, and keep a file of the version before under `tests/fixtures/`.
"""

from __future__ import annotations

import sqlite3
import time
import uuid

from tocsin.errors import JournalError

__all__ = ["APPLICATION", "MIGRATIONS", "check_version", "migrate"]

APPLICATION = 0x54_43_53_4E
"""`TCSN`: what `file` and SQLite see in the header of our files."""

MIGRATIONS: list[tuple[str, str]] = [
    (
        "the journal",
        # blocks: `data` comes last, so that the rest is read without its overflow pages. No index on arrival: it grows
        # with the offset, so it is found by halving, and a commit of one event writes one page less.
        """
        CREATE TABLE blocks (
            first INTEGER PRIMARY KEY,
            last INTEGER NOT NULL,
            arrived_first INTEGER NOT NULL,
            arrived_last INTEGER NOT NULL,
            format TEXT NOT NULL,
            checksum INTEGER NOT NULL,
            statistics BLOB,
            publishers BLOB,
            data BLOB NOT NULL
        );
        CREATE TABLE writers (
            name TEXT NOT NULL, position INTEGER NOT NULL, offsets BLOB NOT NULL, PRIMARY KEY (name, position)
        ) WITHOUT ROWID;
        CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
        CREATE TABLE notes (offset INTEGER NOT NULL, at INTEGER NOT NULL, step TEXT NOT NULL, who TEXT NOT NULL);
        CREATE INDEX notes_by_offset ON notes (offset);
        CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
        """,
    ),
]
"""Name and statements of each step, oldest first."""


def check_version(db: sqlite3.Connection, path: str) -> int:
    """How many steps a file has taken; 0 if it is empty.

    Raises:
        JournalError: it is another program's, or a newer Tocsin's.
    """
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION and (application or version or tables):
        raise JournalError(f"{path} is an SQLite file of another program", path=path, help="choose another name")
    if version > len(MIGRATIONS):
        raise JournalError(
            f"{path} was made by a newer Tocsin: its tables have version {version}, this one knows {len(MIGRATIONS)}",
            path=path,
            help="update Tocsin",
        )
    return int(version)


def migrate(db: sqlite3.Connection, path: str) -> list[str]:
    """Take the steps a file lacks; returns their names.

    Raises:
        JournalError: see `check_version`.
    """
    version = check_version(db, path)
    if version == 0:
        # Only an empty file can be given these two; the first makes it possible to return space, page by page.
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL").fetchone()
    taken = []
    for number, (name, statements) in enumerate(MIGRATIONS[version:], version + 1):
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in filter(None, map(str.strip, statements.split(";"))):
                db.execute(statement)
            if number == 1:
                about = [("file", uuid.uuid4().hex), ("created", time.time_ns() // 1000), ("first", 1), ("clean", 1)]
                db.executemany("INSERT INTO meta VALUES (?, ?)", about)
                db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {number}")
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        taken.append(name)
    return taken
