"""The file, as its one writer sees it: opening it, and every statement that changes it.

SQLite in WAL mode with `synchronous=FULL`: when a transaction returns it is on stable storage, and readers go on with
what they see. Errors are SQLite's here; who calls turns them into ours.

Concurrency: for one thread at a time, after the opening: see `committer`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from msgspec.structs import astuple

from tocsin import crashpoints
from tocsin.clock import SECOND
from tocsin.journal import contract, durably
from tocsin.journal.blocks import Stored
from tocsin.journal.checkpointer import CHECKPOINT
from tocsin.journal.draft import Draft, never_stored, pack_offsets, unpack_offsets
from tocsin.journal.migrations import migrate
from tocsin.journal.reader import head_of, meta_of

__all__ = ["Store"]

_INSERT = "INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_BLOCK = "first, last, arrived_first, arrived_last, format, checksum, statistics, publishers, data"
# Blocks and state in one statement, which is a transaction. It matters: after each statement this thread must win back
# the interpreter from the busy ones, so four instead of one would cost four waits.
_ENTRIES = f"""
    CREATE TEMP VIEW entries AS SELECT {_BLOCK}, '' AS name, x'' AS value FROM blocks;
    CREATE TEMP TRIGGER block_in INSTEAD OF INSERT ON entries WHEN new.name IS NULL BEGIN
        INSERT INTO blocks VALUES ({", ".join(f"new.{column}" for column in _BLOCK.split(", "))});
    END;
    CREATE TEMP TRIGGER state_in INSTEAD OF INSERT ON entries WHEN new.value IS NOT NULL BEGIN
        INSERT INTO state VALUES (new.name, new.value) ON CONFLICT (name) DO UPDATE SET value = excluded.value;
    END;
    CREATE TEMP TRIGGER state_out INSTEAD OF INSERT ON entries WHEN new.name IS NOT NULL AND new.value IS NULL BEGIN
        DELETE FROM state WHERE name = new.name;
    END;
"""
_ENTRY = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NO_STATE, _NO_BLOCK = (None,) * 2, (None,) * 9
_MOST_ENTRIES = 16  # in one statement; of each number there is a statement to be kept
_SMALL = 256 * 1024  # bytes: SQLite copies what is more into a file of its own first
_FORGET = """
    DELETE FROM writers WHERE name = ? AND position <=
        (SELECT position FROM writers WHERE name = ? ORDER BY position DESC LIMIT 1 OFFSET ?)
"""
_LOG_PAGES = 4_000
"""Pages in the log before it is copied into the file: 16 MiB, which is still small and makes copying rare."""
_LOG_BEHIND = 4
"""Times as many pages before a commit copies it, should nobody else have done so."""
_PAGE = 4096
_COMMIT_PAGES = 3  # that a commit writes beside its data: about as many
_LOG_MOST = 64 << 20
"""Bytes of the log that call for more: readers who are always there keep it from being begun anew."""
_PATIENCE = 10_000
"""Milliseconds to wait for a lock of SQLite's; only a program that is not ours could hold one."""
_TRIM_BLOCKS = 256
_TRIM_BYTES = 16 << 20
_VACUUM_PAGES = 512
"""How much of a trim is done before the next commit gets its turn: about 20 ms each."""


class Store:
    """A journal's file, open for writing. Taking the lock is the caller's business."""

    def __init__(self, path: str) -> None:
        """Open the file, or make it; bring its tables up to date; mark it as in use.

        Raises:
            JournalError: it is not a journal.
            sqlite3.Error: it cannot be opened.
        """
        self.path = path
        self._commits = self._pages = 0
        new = not os.path.exists(path)
        self.db = sqlite3.connect(
            f"file:{quote(path)}?mode=rwc", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            self.db.execute(f"PRAGMA busy_timeout = {_PATIENCE}")
            migrate(self.db, path)
            self.db.execute("PRAGMA journal_mode = WAL").fetchone()
            self.db.execute("PRAGMA synchronous = FULL")
            self.db.execute("PRAGMA fullfsync = ON")  # on macOS a plain flush stops at the drive's cache
            self.db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BEHIND * _LOG_PAGES}")
            self.db.execute(f"PRAGMA journal_size_limit = {2 * _LOG_PAGES * _PAGE}")
            self.db.execute("PRAGMA temp_store = MEMORY")  # no other file is needed to commit
            self.db.executescript(_ENTRIES)
            self.crashed = not meta_of(self.db, "clean", 1)
            """Was the file not closed when it was last used?"""
            self.file_id = str(self.db.execute("SELECT value FROM meta WHERE name = 'file'").fetchone()[0])
            """Made with the file."""
            self.db.execute("UPDATE meta SET value = 0 WHERE name = 'clean'")
        except BaseException:
            self.db.close()
            raise
        if new:
            durably.sync_directory(os.path.dirname(path))

    def standing(self) -> tuple[int, int, int]:
        """The head, the first offset kept, and when the head arrived."""
        newest = self.db.execute("SELECT arrived_last FROM blocks ORDER BY first DESC LIMIT 1").fetchone()
        arrived = int(newest[0]) if newest else meta_of(self.db, "arrived", 0)
        return head_of(self.db), meta_of(self.db, "first", 1), arrived

    def write(self, draft: Draft) -> None:
        """Store a draft in one transaction."""
        db = self.db
        self._pages += _COMMIT_PAGES
        size = sum(len(value or b"") for value in draft.state.values())
        self._pages += (size + 100 * len(draft.notes)) // _PAGE
        blocks: Iterable[Stored] = map(self._counted, draft.blocks())
        if not (draft.notes or draft.writers) and draft.block_count + len(draft.state) <= _MOST_ENTRIES:
            few = blocks = list(blocks)
            if len(few) == 1 and not draft.state:
                self._at_once(_INSERT, astuple(few[0]))
                return
            if size + sum(len(block.data) for block in few) <= _SMALL:
                entries = [(*astuple(block), *_NO_STATE) for block in few]
                entries += [(*_NO_BLOCK, name, value) for name, value in draft.state.items()]
                values = ", ".join([_ENTRY] * len(entries))
                self._at_once(f"INSERT INTO entries VALUES {values}", [each for entry in entries for each in entry])
                return
        with self._transaction("commit"):
            for block in blocks:  # made one at a time: what comes packed may be large
                db.execute(_INSERT, astuple(block))
            removed = [(name,) for name, value in draft.state.items() if value is None]
            kept = [(name, value) for name, value in draft.state.items() if value is not None]
            if removed:
                db.executemany("DELETE FROM state WHERE name = ?", removed)
            if kept:
                db.executemany("INSERT INTO state VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", kept)
            if draft.notes:
                db.executemany("INSERT INTO notes VALUES (?, ?, ?, ?)", [astuple(note) for note in draft.notes])
            for (writer, position), offsets in draft.writers.items():
                db.execute("INSERT INTO writers VALUES (?, ?, ?)", (writer, position, pack_offsets(offsets)))
                if writer.startswith(contract.CLIENT):  # else it would grow for ever
                    db.execute(_FORGET, (writer, writer, contract.POSITIONS_KEPT))

    def _counted(self, block: Stored) -> Stored:
        self._pages += len(block.data) // _PAGE
        return block

    def _at_once(self, statement: str, values: Sequence[Any]) -> None:
        """One statement that is a commit."""
        crashpoints.reach("before-commit")
        self.db.execute(statement, values)
        crashpoints.reach("after-commit")

    def highest(self, writer: str) -> int | None:
        """A writer's newest position; None if it has none."""
        found = self.db.execute("SELECT max(position) FROM writers WHERE name = ?", (writer,)).fetchone()[0]
        return None if found is None else int(found)

    def answer(self, writer: str, position: int) -> list[int]:
        """What was answered to a position at or below the writer's newest.

        Raises:
            JournalError: it was never stored.
        """
        found = self.db.execute(
            "SELECT offsets FROM writers WHERE name = ? AND position = ?", (writer, position)
        ).fetchone()
        if found is None:
            raise never_stored(writer, position, self.highest(writer) or 0)
        return unpack_offsets(found[0])

    def newest_blocks(self, above: int = 0) -> Iterator[Stored]:
        """The blocks with offsets above one whose ids must be remembered, in order: as few as will do."""
        head, _, newest = self.standing()
        since = newest - contract.DEDUP_SECONDS * SECOND
        wanted: list[int] = []
        listed = self.db.execute("SELECT first, last, arrived_last FROM blocks ORDER BY first DESC")
        for first, last, arrived in listed:
            behind = head - last
            if last <= above or behind >= contract.DEDUP_MOST or (behind >= contract.DEDUP_LEAST and arrived < since):
                break
            wanted.append(first)
        listed.close()
        for first in reversed(wanted):
            yield Stored(*self.db.execute("SELECT * FROM blocks WHERE first = ?", (first,)).fetchone())

    def replace(self, merged: Stored, count: int) -> bool:
        """Put a block in the place of `count` others with the same offsets; False if they are not there any more."""
        place = merged.first, merged.last
        with self._transaction("merge"):
            there = self.db.execute(
                "SELECT count(*), min(first), max(last) FROM blocks WHERE first BETWEEN ? AND ?", place
            ).fetchone()
            if there != (count, *place):
                return False
            self.db.execute("DELETE FROM blocks WHERE first BETWEEN ? AND ?", place)
            self.db.execute(_INSERT, astuple(merged))
            self._pages += count + len(merged.data) // _PAGE
            return True

    def trim(self, before: int) -> int | None:
        """Drop some of the blocks below an offset; returns the new first, None if there is nothing to drop."""
        gone, size = 0, 0
        with self._transaction("trim"):
            head, _, newest = self.standing()
            oldest = self.db.execute(f"SELECT last, length(data) FROM blocks ORDER BY first LIMIT {_TRIM_BLOCKS}")
            for last, length in oldest.fetchall():
                if last >= before or size > _TRIM_BYTES:
                    break
                gone, size = last, size + length
            if not gone:
                return None
            self.db.execute("DELETE FROM blocks WHERE first <= ?", (gone,))
            self.db.execute("DELETE FROM notes WHERE offset <= ?", (gone,))
            # The head and its time are kept apart: when all blocks are gone, offsets still go on from there.
            kept = [("first", gone + 1), ("head", head), ("arrived", newest)]
            self.db.executemany("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", kept)
        return gone + 1

    def vacuum(self) -> bool:
        """Give some free pages back to the file system; True if there are more."""
        (free,) = self.db.execute("PRAGMA freelist_count").fetchone()
        # As a script: the pragma frees one page each time it is stepped, and `execute` steps it once.
        self.db.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
        (left,) = self.db.execute("PRAGMA freelist_count").fetchone()
        return bool(0 < left < free)

    def shrink(self) -> None:
        """Copy the log into the file and cut both. A reader at work may prevent it; then it happens another time."""
        self.db.execute("PRAGMA busy_timeout = 100")
        try:
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self.db.execute(f"PRAGMA busy_timeout = {_PATIENCE}")

    def tidy(self) -> bool:
        """Keep the log from growing for ever; called after each commit, and cheap. Is it so long that it be copied?"""
        self._commits += 1
        if self._commits % 64 == 0 and os.path.getsize(f"{self.path}-wal") > _LOG_MOST:
            self.shrink()
        if self._pages < _LOG_PAGES:
            return False
        self._pages = 0
        return True

    def checkpoint(self) -> None:
        """Copy what is in the log into the file, as far as readers let it."""
        self.db.execute(CHECKPOINT).fetchall()

    def undo(self) -> None:
        """End a transaction that failed half-way, if there is one."""
        with contextlib.suppress(sqlite3.Error):  # SQLite has rolled it back by itself
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    def close(self, *, clean: bool) -> None:
        """Close the file, marked as closed if `clean`."""
        try:
            if clean:
                self.db.execute("UPDATE meta SET value = 1 WHERE name = 'clean'")
                self.shrink()
        finally:
            self.db.close()

    @contextlib.contextmanager
    def _transaction(self, what: str) -> Iterator[None]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            crashpoints.reach(f"before-{what}")
            self.db.execute("COMMIT")
            crashpoints.reach(f"after-{what}")
        except BaseException:
            self.undo()
            raise
