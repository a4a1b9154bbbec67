"""`archive`: a journal into a lake of Parquet files, exactly once, on Spark.

    driver      which chunks? ─▶ [executors: read the journal, write files to the staging place] ─▶ move, commit, go on

Events never come to the driver: it hears of each chunk what files it has and what is known of them. What counts, and
what happens when somebody dies, is in `journal/archiver.py`; how the files look in `journal/lakefiles.py`.

Promised: when it returns, everything up to the head at the call is in the lake, each event once. It works beside a
node that writes, merges and trims. Killed at any moment and run again, it leaves the same lake as if it had not been.
Not promised: a lake that others than Tocsin read is whole between runs, not during one: see `journal/archiver.py`.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from tocsin.clock import SECOND, SystemClock
from tocsin.errors import JournalDamagedError, JournalError, JournalFullError, LakeError, TocsinError
from tocsin.journal import lakewriter
from tocsin.journal.archived import Joined, Readable, open_archived
from tocsin.journal.archiver import CHUNK, Archiver, Staged
from tocsin.journal.lake import Lake, remember_lake, remembered_lake
from tocsin.journal.manifest import Chunk
from tocsin.journal.opening import file_path
from tocsin.journal.reader import open_reader
from tocsin.spark.asking import is_address
from tocsin.spark.origin import open_origin
from tocsin.spark.session import session

__all__ = ["ArchiveReport", "archive"]

_WAVE = 4
"""Chunks for each core between two commits: what a crash costs at most, and seldom enough to cost nothing."""

_ERRORS: dict[str, type[JournalError]] = {
    kind.__name__: kind for kind in (JournalDamagedError, JournalFullError, LakeError)
}
"""What a task can meet; anything else is a JournalError."""

_log = logging.getLogger(__name__)


class ArchiveReport(msgspec.Struct, frozen=True):
    """What a run has done."""

    first: int
    """The oldest offset that the lake reaches back to without a gap."""
    last: int
    """The newest offset in the lake."""
    events: int
    """How many were added."""
    rewritten: int
    """How many were there already, in chunks that were not complete, and were written anew with others."""
    chunks: int
    """How many chunks were written."""
    files: int
    bytes: int
    dropped: int
    """Chunks that were too old to be kept."""
    removed: int
    """Files that a run which died had left."""
    seconds: float
    version: int
    """Of the lake."""


def archive(
    url: str,
    lake: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    upto: int | None = None,
    chunk: int = CHUNK,
    retention: timedelta | None = None,
    compact: bool = True,
) -> ArchiveReport:
    """Bring everything up to the head of this moment into a lake.

    The lake's place is remembered beside the journal, in `<journal>.lake`: nodes and `past` find it there.

    Args:
        url: the journal, as in `file:plant.db`.
        lake: the lake's directory; it is made if there is none. On a cluster every machine must see it.
        spark: the session that does it; the running one, or a new one of ours, if left out.
        upto: the last offset; None: the head.
        chunk: events of a chunk; a chunk has one file for each day and type in it.
        retention: drop chunks all of whose events are older than this.
        compact: write a chunk that was not complete anew when there is more of it, so that files do not stay small.

    Raises:
        LakeError: the lake is another journal's, another archiver is at work on it, or the journal has another lake
            that reaches farther back.
        JournalError: there is no such journal, or an argument means nothing.
        JournalDamagedError: a block of the journal, or a file of the lake that must be written anew, cannot be read.
        JournalFullError: the lake cannot be written.
    """
    began = time.monotonic()
    _check(upto, retention)
    if is_address(url):
        raise JournalError(
            f"{url} is the address of a node: what is archived is its file",
            path=url,
            help="name the journal's file, as in file:plant.db, where driver and executors see it",
        )
    open_origin(url).close()  # which says what is wrong with a url
    path, lake = os.path.abspath(file_path(url)), Lake(lake).path  # which refuses what is no path
    done = _Done()
    with open_reader(path) as reader, Archiver(reader, lake, chunk, compact) as archiver:
        _check_remembered(path, reader, archiver.journal)
        ranges = archiver.ranges(upto)
        if ranges:
            spark = spark or SparkSession.getActiveSession() or session()
            wave = _WAVE * spark.sparkContext.defaultParallelism
            for start in range(0, len(ranges), wave):
                before = archiver.lake.manifest.chunks
                written = _written(spark, path, lake, archiver.staging, ranges[start : start + wave])
                archiver.install(written)
                done.count(before, [each.chunk for each in written])
                _remember(path, lake)
        dropped = []
        if retention is not None:
            dropped = archiver.drop_before(SystemClock().now() - round(retention.total_seconds() * SECOND))
        found = archiver.lake
        return ArchiveReport(
            first=found.first,
            last=found.last,
            events=done.rows - done.rewritten,
            rewritten=done.rewritten,
            chunks=done.chunks,
            files=done.files,
            bytes=done.bytes,
            dropped=len(dropped),
            removed=archiver.removed,
            seconds=time.monotonic() - began,
            version=found.manifest.version,
        )


def _check(upto: object, retention: object) -> None:
    if upto is not None and (type(upto) is not int or upto < 0):
        raise JournalError(f"upto is {upto!r}", help="give an offset, or leave it out")
    if retention is not None and (not isinstance(retention, timedelta) or retention <= timedelta(0)):
        raise JournalError(f"retention is {retention!r}", help="give a timedelta above 0, or leave it out")


def _check_remembered(path: str, reader: Readable, joined: Joined) -> None:
    """Refuse a lake in whose place nodes and `past` would see less than in the one that they know.

    Raises:
        LakeError: the journal's lake is another one, and reaches farther back.
    """
    known = remembered_lake(path)
    if known is None or os.path.realpath(known) == os.path.realpath(joined.lake.path) or not os.path.isdir(known):
        return
    first = Joined(reader, Lake(known)).first
    if first < joined.first:
        raise LakeError(
            f"{path} is archived in {known}, from offset {first} on; {joined.lake.path} would begin at {joined.first}",
            path=joined.lake.path,
            help=f"go on with that lake, or copy it here first; to forget it, remove {path}.lake",
        )


def _remember(path: str, lake: str) -> None:
    try:
        remember_lake(path, lake)
    except OSError as error:  # a journal on a medium that cannot be written to
        _log.warning("%s.lake cannot be written, so the lake must be named wherever it is used: %s", path, error)


class _Done:
    """What was written so far."""

    def __init__(self) -> None:
        self.rows = self.rewritten = self.chunks = self.files = self.bytes = 0

    def count(self, before: Iterable[Chunk], written: Sequence[Chunk]) -> None:
        files = [file for chunk in written for file in chunk.files]
        self.rows += sum(file.rows for file in files)
        self.files += len(files)
        self.bytes += sum(file.bytes for file in files)
        self.chunks += len(written)
        ranges = [(chunk.first, chunk.last) for chunk in written]
        for old in before:
            if any(first <= old.first and old.last <= last for first, last in ranges):
                self.rewritten += sum(file.rows for file in old.files)


# -- on executors


class _Answer(msgspec.Struct):
    """What a task says of a chunk: where it is, or why it is not and which file is to blame."""

    chunk: Chunk | None = None
    place: str = ""
    error: str = ""
    message: str = ""
    help: str | None = None


def _written(
    spark: SparkSession, path: str, lake: str, staging: str, ranges: Sequence[tuple[int, int]]
) -> list[Staged]:
    """Have chunks written, one task for each."""
    frame = spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(_task(path, lake, staging, ranges), "answer BINARY")
    found = [msgspec.json.decode(bytes(row[0]), type=_Answer) for row in frame.collect()]
    staged = []
    for answer in found:
        if answer.chunk is None:
            raise _ERRORS.get(answer.error, JournalError)(answer.message, path=answer.place, help=answer.help)
        staged.append(Staged(answer.chunk, answer.place))
    return staged


def _task(
    path: str, lake: str, staging: str, ranges: Sequence[tuple[int, int]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                answer = _write_chunk(path, lake, staging, *ranges[number])
                yield pa.record_batch({"answer": pa.array([msgspec.json.encode(answer)], pa.binary())})

    return write


def _write_chunk(path: str, lake: str, staging: str, first: int, last: int) -> _Answer:
    """Write one chunk. Each attempt has a place of its own: of a task that runs twice one is moved, one cleared."""
    place = os.path.join(staging, f"{first}-{last}.{secrets.token_hex(4)}")
    try:
        with open_archived(path, lake) as source:
            return _Answer(lakewriter.write(source.blocks(first, last), first, last, place), place)
    except TocsinError as error:
        blamed = getattr(error, "path", None) or path
        return _Answer(place=blamed, error=type(error).__name__, message=error.message, help=error.help)
