"""Is a journal's file what was written? Every block is read and compared; nothing is changed.

Promised: a changed byte in any block, a missing or misplaced block, and times that go backward are found and named by
their offsets. It may run beside a writer: each question is a short read of its own.
Not promised: to find what a deliberate forger hides; checksums are no signatures. Mending is `repair.py`'s.
"""

from __future__ import annotations

import os
import sqlite3

import msgspec
import pyarrow as pa

from tocsin.errors import JournalDamagedError, JournalError
from tocsin.journal import statistics
from tocsin.journal.blocks import BLOCK_EVENTS, LOST, Stored, batch_of
from tocsin.journal.draft import unpack_offsets
from tocsin.journal.faults import as_journal_error
from tocsin.journal.publishers import unpack_publishers
from tocsin.journal.reader import Reader, meta_of, open_reader

__all__ = ["Damage", "Report", "check"]


class Damage(msgspec.Struct, frozen=True):
    """Offsets that cannot be read, and why."""

    first: int
    last: int
    reason: str
    at_end: bool = False
    """Whether nothing readable comes after them: a torn tail, which `repair` cuts without being forced."""

    def __str__(self) -> str:
        """Say it in words."""
        return f"offsets {self.first} to {self.last}{' (at the end)' if self.at_end else ''}: {self.reason}"


class Report(msgspec.Struct):
    """What `check` found."""

    path: str
    first: int = 1
    head: int = 0
    blocks: int = 0
    events: int = 0
    """Events that were read."""
    damaged: list[Damage] = []
    """Stretches that cannot be read, oldest first."""
    lost: list[tuple[int, int]] = []
    """Stretches that `repair` took away earlier: known losses, no faults."""
    problems: list[str] = []
    """Whatever else is not as it should be."""

    @property
    def ok(self) -> bool:
        """Is everything as it was written?"""
        return not self.damaged and not self.problems

    def lines(self) -> list[str]:
        """The report for people, a line for each finding."""
        found = [f"{self.path}: offsets {self.first} to {self.head}, {self.events} events in {self.blocks} blocks"]
        found += [f"damaged: {each}" for each in self.damaged]
        found += [f"problem: {each}" for each in self.problems]
        found += [f"lost earlier: offsets {first} to {last}" for first, last in self.lost]
        return [*found, "everything is as it was written" if self.ok else "see `tocsin journal repair`"]


def check(path: str | os.PathLike[str]) -> Report:
    """Verify a journal's file.

    Raises:
        JournalError: there is no such file, or it is no journal at all.
    """
    with open_reader(path) as reader:
        report = Report(reader.path)
        try:
            report.first, report.head = reader.first, reader.head
            _check_blocks(reader, report)
            _check_tables(reader, report)
        except JournalDamagedError as error:  # pages that SQLite itself cannot make sense of
            report.problems.append(str(error))
    return report


def _check_blocks(reader: Reader, report: Report) -> None:
    """Walk from block to block by offset, so that a merge or a trim in between does not matter."""
    expected, arrived = report.first, 0
    while True:
        with reader.connection() as db:
            db.execute("BEGIN")  # what is asked of one block belongs together
            expected = max(expected, meta_of(db, "first", 1))
            about = _next(db, expected)
            if about is None:
                break
            first, last, following = about
            if first > expected:
                report.damaged.append(Damage(expected, first - 1, "there is no block with them"))
            expected = last + 1
            report.blocks += 1
            try:
                block = _load(db, first, reader.path)
                if following is not None and block.last >= following:
                    raise JournalError("its last offset belongs to the next block")
                report.events += _check_block(block, arrived, report)
                arrived = block.arrived_last
            except JournalError as error:
                report.damaged.append(Damage(first, last, error.message))
    report.head = max(report.head, expected - 1)
    end = report.head
    for place in reversed(range(len(report.damaged))):
        each = report.damaged[place]
        if each.last != end:
            break
        report.damaged[place] = msgspec.structs.replace(each, at_end=True)
        end = each.first - 1


def _next(db: sqlite3.Connection, expected: int) -> tuple[int, int, int | None] | None:
    """First and last offset of the block at or after an offset, and where the one behind it begins."""
    found = db.execute("SELECT first, last FROM blocks WHERE first <= ? ORDER BY first DESC LIMIT 1", (expected,))
    row = found.fetchone()
    if row is None or row[1] < expected:
        row = db.execute(
            "SELECT first, last FROM blocks WHERE first > ? ORDER BY first LIMIT 1", (expected,)
        ).fetchone()
    if row is None:
        return None
    first, last = row
    (following,) = db.execute("SELECT min(first) FROM blocks WHERE first > ?", (first,)).fetchone()
    # A changed column may claim any end. No block is longer than this, and none reaches into the next.
    longest = first + BLOCK_EVENTS - 1 if following is None else following - 1
    end = min(max(first, last), longest)
    if end < expected or (following is not None and following <= first):  # else this walk might never end
        raise JournalDamagedError("the table of blocks is out of order", help="restore the file from a copy")
    return first, end, following


def _load(db: sqlite3.Connection, first: int, path: str) -> Stored:
    try:
        return Stored(*db.execute("SELECT * FROM blocks WHERE first = ?", (first,)).fetchone())
    except sqlite3.Error as error:
        raise as_journal_error(error, path) from None


def _check_block(block: Stored, arrived: int, report: Report) -> int:
    """How many events a block holds, all of them read. Raises JournalError."""
    if block.format == LOST:
        report.lost.append((block.first, block.last))
        return 0
    batch = batch_of(block)
    moments = batch.column("arrived").cast(pa.int64()).to_pylist()
    if batch.column("offset").to_pylist() != list(range(block.first, block.last + 1)):
        raise JournalError("its events have other offsets")
    if moments != sorted(moments) or (moments[0], moments[-1]) != (block.arrived_first, block.arrived_last):
        raise JournalError("its events are not in the order of their arrival")
    if moments[0] < arrived:
        raise JournalError("its events arrived before those of the block before it")
    where = f"the block of offsets {block.first} to {block.last}"
    try:
        unpack_publishers(block.publishers, block.last - block.first + 1)
    except JournalDamagedError as error:
        report.problems.append(f"{where}: {error.message}")
    try:
        if block.statistics is not None:
            statistics.load(block.statistics)
    except JournalDamagedError as error:
        report.problems.append(f"{where}: {error.message}; it is read without them")
    return int(batch.num_rows)


def _check_tables(reader: Reader, report: Report) -> None:
    """What is beside the blocks agrees with them."""
    with reader.connection() as db:
        for (finding,) in db.execute("PRAGMA quick_check(20)").fetchall():
            if finding != "ok":
                report.problems.append(f"SQLite: {finding}")
        for name, position, packed in db.execute("SELECT name, position, offsets FROM writers").fetchall():
            try:
                beyond = max(unpack_offsets(packed), default=0) > report.head
            except msgspec.MsgspecError:
                report.problems.append(f"the answer to position {position} of writer {name!r} cannot be read")
                continue
            if beyond:
                report.problems.append(f"position {position} of writer {name!r} has offsets above the head")
        (notes,) = db.execute("SELECT count(*) FROM notes WHERE offset > ?", (report.head,)).fetchone()
        if notes:
            report.problems.append(f"{notes} notes are about offsets above the head")
        for (name,) in db.execute("SELECT name FROM state WHERE typeof(value) <> 'blob'").fetchall():
            report.problems.append(f"the state {name!r} is not bytes")
