"""Reading a journal's file: from any thread and any process, at any time, without a lock.

Each question is one short read transaction, so a reader never holds up the writer or keeps old pages alive. Between two
questions blocks may be merged or trimmed. Merging is not seen: a block that is gone is found again by its offsets.
Trimming is: it raises `TrimmedError`.

Promised: whole commits only; what was seen once is seen again until it is trimmed.
Not promised: that two calls see the same head.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tocsin.errors import JournalDamagedError, JournalError, TrimmedError
from tocsin.journal.blocks import ROWS, Stored, arrivals_of, batch_of, events_of, statistics_of
from tocsin.journal.contract import Block, Note
from tocsin.journal.faults import translated
from tocsin.journal.migrations import check_version
from tocsin.journal.publishers import publisher_at
from tocsin.journal.segments import between
from tocsin.journal.statistics import Statistics
from tocsin.model import Event

__all__ = ["Reader", "StoredBlock", "block_at", "head_of", "meta_of", "open_reader", "trimmed"]

_PAGE = 256
"""Blocks listed at a time."""
_INLINE = 16 << 10
"""Blocks up to this many bytes come with the list, which saves a question for each; a page of them is 4 MiB at most."""
_SPARE = 8
"""Connections kept open for the next question."""
_BLOCK_OF = "coalesce((SELECT max(first) FROM blocks WHERE first <= ?), 0)"
_ABOUT = "first, last, arrived_first, arrived_last, format, checksum, statistics, publishers"
_WITH_DATA = f"{_ABOUT}, CASE WHEN length(data) <= {_INLINE} AND typeof(data) = 'blob' THEN data END"


def open_reader(path: str | os.PathLike[str]) -> Reader:
    """Open a journal's file for reading; another process may be writing to it.

    Raises:
        JournalError: there is no such file, or it is not a journal.
    """
    reader = Reader(os.path.realpath(path))
    try:
        with reader.connection() as db:
            if check_version(db, reader.path) == 0:
                raise JournalError(f"{reader.path} holds no journal", path=reader.path)
    except BaseException:
        reader.close()
        raise
    return reader


class Reader:
    """A journal's file, open for reading. Any number of threads may use one reader."""

    def __init__(self, path: str) -> None:
        """Prepare to read; the file is opened when it is first asked."""
        self.path = path
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for the time of the block: one question, or several that belong together."""
        with self._lock:
            if self._closed:
                raise JournalError("the journal is closed", path=self.path, help="open it again")
            db = self._idle.pop() if self._idle else None
        with translated(self.path):
            db = db if db is not None else _connect(self.path)
            try:
                yield db
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                self._give_back(db)

    def _give_back(self, db: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _SPARE:
                self._idle.append(db)
                return
        db.close()

    @property
    def head(self) -> int:
        """The newest offset; 0 while it is empty."""
        with self.connection() as db:
            return head_of(db)

    @property
    def first(self) -> int:
        """The oldest offset still kept; head + 1 if there is none."""
        with self.connection() as db:
            return meta_of(db, "first", 1)

    @property
    def kept(self) -> int:
        """The same: a reader of the file sees no archive."""
        return self.first

    @property
    def file_id(self) -> str:
        """Made with the file and kept with it: tells whether a position, or a lake, belongs to this journal."""
        with self.connection() as db:
            return str(db.execute("SELECT value FROM meta WHERE name = 'file'").fetchone()[0])

    def blocks(self, first: int = 1, last: int | None = None, *, backwards: bool = False) -> Iterator[Block]:
        """See `contract.Journal.blocks`."""
        kept = self.first
        if 1 < first < kept:
            raise trimmed(first, kept, self.path)
        head = self.head
        walk = self._backwards if backwards else self._forwards
        return walk(max(first, kept), head if last is None else min(last, head), first <= 1)

    def read(self, first: int = 1, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """See `contract.Journal.read`."""
        last = self.head if last is None else last
        batches = (between(block.batch(), first, last) for block in self.blocks(first, last))
        return (batch for batch in batches if batch.num_rows)

    def offset_at(self, moment: int) -> int:
        """See `contract.Journal.offset_at`."""
        with self.connection() as db:
            db.execute("BEGIN")
            found = _first_at(db, moment)
            if found is None:
                return head_of(db) + 1
        return found.first + bisect_left(arrivals_of(found, self.path), moment)

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """See `contract.Journal.state`."""
        with self.connection() as db:
            # A range, not LIKE: it uses the index, is exact about case, and a prefix may hold % and _.
            end = _after(prefix)
            found = db.execute(
                f"SELECT name, value FROM state WHERE name >= ? {'' if end is None else 'AND name < ?'} ORDER BY name",
                (prefix,) if end is None else (prefix, end),
            )
            return dict(found.fetchall())

    def notes(self, offset: int) -> list[Note]:
        """See `contract.Journal.notes`."""
        with self.connection() as db:
            found = db.execute("SELECT offset, at, step, who FROM notes WHERE offset = ? ORDER BY rowid", (offset,))
            return [Note(*row) for row in found.fetchall()]

    def publisher(self, offset: int) -> str:
        """See `contract.Journal.publisher`."""
        found = self._list(
            "SELECT first, last, publishers FROM blocks WHERE first <= ? ORDER BY first DESC LIMIT 1", (offset,)
        )
        if not found or found[0][1] < offset:
            return ""
        first, last, packed = found[0]
        return publisher_at(packed, last - first + 1, offset - first)

    def close(self) -> None:
        """Close the file. Blocks already read stay readable, others do not. May be repeated."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def __enter__(self) -> Reader:
        """Use it in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def load(self, first: int, last: int) -> list[Stored]:
        """The stored blocks that hold these offsets, whole, as they are now.

        Raises:
            TrimmedError: some of them are no longer kept.
            JournalDamagedError: some of them are missing.
        """
        sql = f"SELECT {_ABOUT}, data FROM blocks WHERE first BETWEEN {_BLOCK_OF} AND ? ORDER BY first"
        found = [Stored(*row) for row in self._list(sql, (first, last)) if row[1] >= first]
        expected = first
        for each in found:
            if each.first > expected:
                break
            expected = each.last + 1
        if expected <= last:
            raise self._gap(expected, last)
        return found

    def _list(self, sql: str, values: tuple[int, ...]) -> list[tuple[Any, ...]]:
        with self.connection() as db:
            return db.execute(sql, values).fetchall()

    # Both walks take a page at a time, each beginning where the last one ended, by offset. A merge in between may put a
    # block there that holds offsets given already: those are cut off. `anything`: the caller did not ask for the very
    # first offset, only for all there is, so a trim at the old end is none of its business.

    def _forwards(self, first: int, last: int, anything: bool) -> Iterator[Block]:
        sql = f"SELECT {_WITH_DATA} FROM blocks WHERE first BETWEEN {_BLOCK_OF} AND ? ORDER BY first LIMIT {_PAGE}"
        expected, begun = first, False
        while expected <= last:
            page = [row for row in self._list(sql, (expected, last)) if row[1] >= expected]
            if not page and anything and not begun:
                return
            if not page:
                raise self._gap(expected, last)
            for row in page:
                if row[0] > expected and (begun or not anything):
                    raise self._gap(expected, row[0] - 1)
                yield StoredBlock(self, row, max(expected, row[0]) if begun else row[0], row[1])
                expected, begun = row[1] + 1, True

    def _backwards(self, first: int, last: int, anything: bool) -> Iterator[Block]:
        sql = f"SELECT {_WITH_DATA} FROM blocks WHERE first <= ? AND last >= ? ORDER BY first DESC LIMIT {_PAGE}"
        expected, begun = last, False
        while expected >= first:
            page = self._list(sql, (expected, first))
            if not page and anything:
                return
            if not page:
                raise self._gap(first, expected)
            for row in page:
                if row[1] < expected:
                    raise self._gap(row[1] + 1, expected)
                yield StoredBlock(self, row, row[0], min(expected, row[1]) if begun else row[1])
                expected, begun = row[0] - 1, True

    def _gap(self, first: int, last: int) -> JournalError:
        """Why offsets are not there."""
        kept = self.first
        if first < kept:
            return trimmed(first, kept, self.path)
        return JournalDamagedError(
            f"offsets {first} to {last} are missing",
            path=self.path,
            first=first,
            last=last,
            help="see `tocsin journal check`",
        )


class StoredBlock:
    """A stretch of the file: what is known of it at once, its events when they are asked for.

    It stays readable when its row is merged into another, until its offsets are trimmed.
    """

    def __init__(self, reader: Reader, row: tuple[Any, ...], first: int, last: int) -> None:
        """Show the offsets `first` to `last` of a row of the table, whose data may be None: not loaded."""
        self._reader = reader
        self._row = row
        self._first = first
        self._last = last
        self._whole = first == row[0] and last == row[1]

    @property
    def first(self) -> int:
        """See `contract.Block.first`."""
        return self._first

    @property
    def last(self) -> int:
        """See `contract.Block.last`."""
        return self._last

    @property
    def arrived(self) -> tuple[int, int]:
        """See `contract.Block.arrived`."""
        if self._whole:
            return self._row[2], self._row[3]
        arrived = self.batch(("arrived",)).column("arrived").cast(pa.int64())
        return (arrived[0].as_py(), arrived[-1].as_py()) if len(arrived) else (self._row[2], self._row[3])

    @property
    def statistics(self) -> Statistics | None:
        """See `contract.Block.statistics`."""
        return statistics_of(self._row[6])

    def events(self) -> list[Event]:
        """See `contract.Block.events`."""
        found = [event for part in self._parts() for event in events_of(part, self._reader.path)]
        # Every event has an offset here; the parts may reach beyond this block if it was merged meanwhile.
        return [event for event in found if self._first <= (event.offset or 0) <= self._last]

    def batch(self, columns: Collection[str] | None = None) -> pa.RecordBatch:
        """See `contract.Block.batch`."""
        parts = (batch_of(part, self._reader.path, columns) for part in self._parts())
        batches = [between(part, self._first, self._last) for part in parts]
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    @property
    def path(self) -> str:
        """The file."""
        return self._reader.path

    def as_rows(self) -> Stored | None:
        """The block as it is stored, if those are rows; None: it is Arrow, or has become part of it meanwhile."""
        if self._row[4] != ROWS or not self._whole:
            return None
        parts = self._parts()
        return parts[0] if parts[0].format == ROWS else None

    def __repr__(self) -> str:
        """Show where it is."""
        return f"<block {self._first}-{self._last}>"

    def _parts(self) -> list[Stored]:
        return [Stored(*self._row)] if self._row[8] is not None else self._reader.load(self._first, self._last)


def head_of(db: sqlite3.Connection) -> int:
    """The newest offset in a file."""
    found = db.execute("SELECT last FROM blocks ORDER BY first DESC LIMIT 1").fetchone()
    return int(found[0]) if found else meta_of(db, "head", 0)


def meta_of(db: sqlite3.Connection, name: str, default: int) -> int:
    """A number that a file keeps about itself."""
    found = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return int(found[0]) if found else default


def trimmed(asked: int, kept: int, path: str) -> TrimmedError:
    """The error for offsets below the first."""
    return TrimmedError(f"offset {asked} is no longer kept; {kept} is the first that is", first=kept, path=path)


def block_at(db: sqlite3.Connection, offset: int) -> Stored | None:
    """The block that holds an offset."""
    row = db.execute(
        f"SELECT {_ABOUT}, data FROM blocks WHERE first <= ? ORDER BY first DESC LIMIT 1", (offset,)
    ).fetchone()
    return Stored(*row) if row is not None and row[1] >= offset else None


def _first_at(db: sqlite3.Connection, moment: int) -> Stored | None:
    """The first block with an event that arrived at or after a moment, by halving: arrival grows with the offset."""
    ends = db.execute("SELECT min(first), max(first) FROM blocks").fetchone()
    if ends[0] is None:
        return None
    low, high = ends
    if db.execute("SELECT arrived_last FROM blocks WHERE first = ?", (high,)).fetchone()[0] < moment:
        return None
    while low < high:
        first, last, arrived = db.execute(
            "SELECT first, last, arrived_last FROM blocks WHERE first <= ? ORDER BY first DESC LIMIT 1",
            ((low + high) // 2,),
        ).fetchone()
        if arrived >= moment:
            high = first
        else:
            low = last + 1
    return block_at(db, high)


def _after(prefix: str) -> str | None:
    """The first text in SQLite's order, which is that of code points, after all that begin with a prefix."""
    for place in reversed(range(len(prefix))):
        code = ord(prefix[place])
        if code < 0x10FFFF:
            return prefix[:place] + chr(0xE000 if code == 0xD7FF else code + 1)  # between the two lie surrogates
    return None


def _connect(path: str) -> sqlite3.Connection:
    place = f"file:{quote(path)}?mode=ro"
    try:
        return _opened(place)
    except sqlite3.OperationalError as error:
        # On a medium that cannot be written to, SQLite has nowhere to put the index of its log. Without a log there is
        # nothing to index, and no writer: the file may be read as it is.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        if not os.path.exists(path) or os.path.exists(f"{path}-wal"):
            raise
        return _opened(f"{place}&immutable=1")


def _opened(place: str) -> sqlite3.Connection:
    db = sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA busy_timeout = 5000")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the file, which `connect` does not
    except BaseException:
        db.close()
        raise
    return db
