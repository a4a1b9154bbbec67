"""DataFrames into a journal: `df.write.format("tocsin")` and `df.writeStream.format("tocsin")`.

    task, on an executor:  rows ─ frames.py ─▶ events ─ packed.py ─▶ a staged file ─▶ message: where it is, checksums
    commit, on the driver: messages ─▶ ONE request: all rows, the writer's position, which query the writer belongs to

Exactly once: Spark numbers the batches of a query and repeats a number until it knows that the commit took place. The
journal stores a writer's number with its events, in one transaction, and answers a number it has from what it holds,
after hours or millions of events. So a batch that is repeated stores nothing, also if its rows come out differently.

Promised
    - All rows of a batch or none. A row that is no event fails the query with its column, value and place.
    - Executors never open the journal. The driver opens it for each commit, so several queries can write to one journal
      in turn; what holds it longer (a node) is named in `JournalLockedError`.
    - A writer belongs to one query, known by the id in its checkpoint. Another query under its name, which would number
      from 0 again and see its rows taken for repetitions, gets `WriterError`; so does a query that changes its name.
    - Ids that are not given are made of writer, query, batch, partition and row: an attempt that is repeated makes the
      same ones.

Not promised: an order among partitions other than their number; an order at all if Spark reads its rows in another one.
A batch write without `writer` and `batch` is stored anew each time it is run.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tocsin.clock import SystemClock
from tocsin.errors import EventError, JournalError, JournalLockedError, OptionError, TocsinError, WriterError
from tocsin.journal.contract import Journal, Request
from tocsin.journal.ids import Ids
from tocsin.journal.opening import file_path
from tocsin.journal.packed import PackedEvents, pack
from tocsin.journal.sqlite import SqliteJournal
from tocsin.model import Event
from tocsin.spark.frames import Frames
from tocsin.spark.options import WriteOptions, write_options
from tocsin.spark.staging import Piece, Stage, StagedFile, chunks_in, job_name, stream_name

__all__ = ["BatchSink", "Staged", "StreamSink", "batch_writer", "stream_writer"]

MAX_EVENT_BYTES = 1 << 20
"""The most bytes of one payload, as where events enter a node."""
_STATE = "sink/"
"""Where the journal's state keeps which query a writer belongs to."""
_NO_QUERY = b"batch"
"""The owner of a writer that is used in batch writes, outside of any streaming query."""
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""What Spark tells each task of a streaming query, wherever its checkpoint is configured."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """The writer of `df.write`.

    Raises:
        OptionError: an option is wrong, or the mode is overwrite.
        SchemaError: a column is missing, unknown or of a wrong type.
    """
    if overwrite:
        raise OptionError("a journal cannot be overwritten", field="mode", help='write .mode("append")')
    _check_scheme(options)
    return BatchSink(write_options(options), _columns(schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """The writer of `df.writeStream`.

    Raises:
        OptionError: an option is wrong, or the output mode is complete.
        SchemaError: a column is missing, unknown or of a wrong type.
    """
    if overwrite:
        raise OptionError(
            "outputMode complete would write everything anew", field="outputMode", help="use append or update"
        )
    _check_scheme(options)
    return StreamSink(write_options(options, streaming=True), _columns(schema))


def _check_scheme(options: Mapping[str, str]) -> None:
    """Refuse urls that other verbs take."""
    scheme = options.get("url", "").partition(":")[0]
    if scheme in ("http", "https"):
        message = "writing through a node's address is not possible yet"
        raise OptionError(message, field="url", help="name the journal's file, file:plant.db, while no node has it")
    if scheme == "memory":
        message = "a journal in memory cannot be seen by Spark's processes"
        raise OptionError(message, field="url", help="name a file, such as file:plant.db")


def _columns(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")  # the zone is only a label: instants are the same in all


class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, path: str, pieces: list[Piece], query: str | None) -> None:
        """Name the file, its chunks, and the streaming query the task belongs to."""
        self.path, self.pieces, self.query = path, pieces, query


class _Sink:
    """What both writers do. Made on the driver, sent to the executors."""

    def __init__(self, options: WriteOptions, schema: pa.Schema, whose: str) -> None:
        self.options = options
        self.stage = Stage(options.staging, whose)
        self.extra = options.extra_columns
        self.unique = "id" not in schema.names  # else the journal compares them with what it has
        Frames(schema, extra=self.extra)  # raises here, before any row is read
        folder = os.path.dirname(file_path(options.url))
        if not os.path.isdir(folder):
            raise JournalError(f"there is no directory {folder}", path=folder, help="make it, or correct the url")
        self.stage.prepare()

    def write_rows(self, batches: Iterator[pa.RecordBatch], ids: str, query: str | None) -> Staged:
        """Turn the rows of one task into events and stage them."""
        partition = _task().partitionId()
        rows = _Rows(batches, f"{ids}-{partition}-", self.extra)
        with StagedFile(self.stage, partition) as file:
            try:
                for chunk, count in pack(rows, MAX_EVENT_BYTES):
                    file.add(chunk, count)
            except EventError as error:
                message = f"row {rows.given + 1} of partition {partition} is no event: {error.message}"
                raise EventError(message, field=error.field, help=error.help) from None
        return Staged(file.path, file.pieces, query)

    def store(self, messages: Sequence[Staged], position: int | None, *, streaming: bool) -> None:
        """Append what was staged, in the order of partitions, in one transaction."""
        chunks = [chunk for each in messages for chunk in chunks_in(each.path, each.pieces)]
        if not chunks:  # a batch without rows need not be remembered: repeated, it has none or is stored then
            return
        writer, owner = self.options.writer, (messages[0].query or "").encode() or _NO_QUERY
        with _opened(self.options.url) as journal:
            state = {}
            if writer is not None:
                _check_owner(journal, writer, owner, streaming)
                state = {_STATE + writer: owner}
            events = PackedEvents(chunks, unique=self.unique)
            request = Request(SystemClock().now(), events, writer, position, by=writer or "spark", state=state)
            try:
                _submit(journal, request)
            except WriterError as error:
                mend = "go on with the newest checkpoint, or begin with a new one and another writer"
                raise WriterError(f"the checkpoint is older than the journal: {error.message}", help=mend) from None
            if writer is not None and not request.fresh and _STATE + writer not in journal.state(_STATE):
                raise _taken(writer, "something that is no Spark query")


class BatchSink(_Sink, DataSourceArrowWriter):
    """`df.write`: one batch, repeatable if it has a writer and a number."""

    def __init__(self, options: WriteOptions, schema: pa.Schema) -> None:
        """Check options and columns; see `batch_writer`."""
        super().__init__(options, schema, job_name())
        self.batch = options.batch or 0
        self.ids = f"{_digest(options.writer if options.writer is not None else secrets.token_hex(16))}-{self.batch}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        query = _task().getLocalProperty(_QUERY_ID)  # inside foreachBatch there is one
        return self.write_rows(iterator, self.ids, query)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Store everything that was staged."""
        position = self.batch + 1 if self.options.writer is not None else None
        self.store(_told(messages), position, streaming=False)
        self.stage.clear()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what was staged."""
        self.stage.clear()


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """`df.writeStream`: a batch after the other, each stored once."""

    def __init__(self, options: WriteOptions, schema: pa.Schema) -> None:
        """Check options and columns; see `stream_writer`."""
        self.writer = options.writer or ""
        super().__init__(options, schema, stream_name(options.url, self.writer))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        query, batch = _task().getLocalProperty(_QUERY_ID), _task().getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise TocsinError(
                "Spark does not say which query and batch a task belongs to",
                help="use micro-batches, as every trigger but continuous does",
            )
        return self.write_rows(iterator, f"{_digest(self.writer, query)}-{batch}", query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Store a batch, unless it is stored."""
        self.store(_told(messages), batchId + 1, streaming=True)
        self.stage.clear()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Forget what was staged for a batch."""
        self.stage.clear()


class _Rows:
    """The events of a task, counted as they are taken."""

    def __init__(self, batches: Iterator[pa.RecordBatch], ids: str, extra: bool) -> None:
        self._batches, self._ids, self._extra = batches, ids, extra
        self.given = 0
        """Events packed so far: if something is wrong, it is wrong with the next."""

    def __iter__(self) -> Iterator[Event]:
        plan: Frames | None = None
        done = 0
        for batch in self._batches:
            plan = plan or Frames(batch.schema, extra=self._extra)
            for event in plan.events(batch, functools.partial(self._id, done), datetime.now(UTC)):
                yield event
                self.given += 1  # after the yield: the event is packed
            done += batch.num_rows

    def _id(self, done: int, row: int) -> str:
        return f"{self._ids}{done + row}"


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise TocsinError("rows are written by tasks of Spark only")
    return context


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=10).hexdigest()


# -- the journal


_ids: dict[str, Ids] = {}
"""By path, what the last commit of this process knew of each journal's ids: Spark lets one process do many commits."""


@contextlib.contextmanager
def _opened(url: str) -> Iterator[SqliteJournal]:
    """The journal, open for one commit."""
    path = os.path.realpath(file_path(url))  # one file, one lock, whatever links lead to it
    try:
        turn = os.open(f"{path}.sink.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        help = "check its directory and permissions"
        raise JournalError(f"{path} cannot be written to: {error.strerror}", path=path, help=help) from None
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)  # other sinks hold the journal for a moment only: wait for them
        try:
            journal = SqliteJournal(path, lazy=True, ids=_ids.pop(path, None))
        except JournalLockedError as error:
            mend = "close it while this query runs; to write beside it, publish through it instead"
            raise JournalLockedError(error.message, path=path, holder=error.holder, help=mend) from None
        try:
            yield journal
        finally:
            journal.close()
            _ids[path] = journal.ids
    finally:
        os.close(turn)


def _check_owner(journal: Journal, writer: str, owner: bytes, streaming: bool) -> None:
    owners = journal.state(_STATE)
    known = owners.get(_STATE + writer)
    if known is not None and known != owner:
        raise _taken(writer, f"the query {known.decode()}" if known != _NO_QUERY else "batch writes")
    if known is None and streaming:
        for name, other in owners.items():
            if other == owner:
                raise WriterError(
                    f"this query has written as {name.removeprefix(_STATE)!r} until now, not as {writer!r}",
                    help="keep the name, or begin with a new checkpoint: a batch might be stored under both",
                )


def _taken(writer: str, owner: str) -> WriterError:
    return WriterError(
        f"the writer {writer!r} belongs to {owner}; the batches of this query would be taken for repetitions",
        help="give this query a writer of its own, or go on with the checkpoint of the one that has the name",
    )


def _submit(journal: Journal, request: Request) -> None:
    stored = threading.Event()
    request.done = lambda _: stored.set()
    journal.submit(request)
    stored.wait()
    if request.error is not None:
        raise request.error
