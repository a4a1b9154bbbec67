"""DataFrames into a journal: `df.write.format("tocsin")` and `df.writeStream.format("tocsin")`.

    task, on an executor:  rows ─ frames.py ─▶ events ─ packed.py ─▶ staged ─▶ message: where they are, checksums
    commit, on the driver: messages ─▶ ONE request: all rows, the writer's position, which query the writer belongs to

Where they are staged, and who appends them, is a matter of the url: see `intofile.py` and `intonode.py`.

Exactly once: Spark numbers the batches of a query and repeats a number until it knows that the commit took place. The
journal stores a writer's number with its events, in one transaction, and answers a number it has from what it holds,
after hours or millions of events. So a batch that is repeated stores nothing, also if its rows come out differently.

Promised
    - All rows of a batch or none. A row that is no event fails the query with its column, value and place.
    - A writer belongs to one query, known by the id in its checkpoint. Another query under its name, which would number
      from 0 again and see its rows taken for repetitions, gets `WriterError`; so does a query that changes its name.
    - Ids that are not given are made of writer, query, batch, partition and row: an attempt that is repeated makes the
      same ones.

Not promised: an order among partitions other than their number; an order at all if Spark reads its rows in another one.
A batch write without `writer` and `batch` is stored anew each time it is run.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tocsin.composite.leaves import SOURCE
from tocsin.errors import EventError, OptionError, TocsinError
from tocsin.journal.packed import pack
from tocsin.model import Event
from tocsin.node.admission import is_reserved, refused
from tocsin.spark.asking import Address
from tocsin.spark.frames import Frames
from tocsin.spark.intofile import FileTarget
from tocsin.spark.intonode import NodeTarget
from tocsin.spark.options import WriteOptions, write_options
from tocsin.spark.staging import Piece, Stage, job_name, stream_name

__all__ = ["Attempt", "BatchSink", "Staged", "StreamSink", "Target", "batch_writer", "stream_writer"]

MAX_EVENT_BYTES = 1 << 20
"""The most bytes of one payload, as where events enter a node."""
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
    if options.get("url", "").startswith("memory:"):
        message = "a journal in memory cannot be seen by Spark's processes"
        raise OptionError(message, field="url", help="name a file, such as file:plant.db")


def _columns(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")  # the zone is only a label: instants are the same in all


class Attempt(Protocol):
    """The rows of one attempt of a task, on their way. What it leaves with an error goes with its batch."""

    path: str
    """Where they are, or how their names begin."""
    pieces: list[Piece]
    """Those that were added, in order."""

    def add(self, rows: bytearray, count: int) -> None:
        """Stage a chunk of `packed.pack`.

        Raises:
            TocsinError: it cannot be.
        """


class Target(Protocol):
    """Where a batch goes. Made on the driver, sent to the executors."""

    most: int | None
    size: int | None
    """Events and bytes of a chunk, as for `packed.pack`."""

    def attempt(self, partition: int) -> AbstractContextManager[Attempt]:
        """Begin to stage the rows of a task; on an executor."""

    def store(
        self,
        staged: Sequence[tuple[str, list[Piece]]],
        writer: str | None,
        position: int | None,
        query: str | None,
        *,
        streaming: bool,
        unique: bool,
    ) -> None:
        """Store what was staged, and be done with the batch; on the driver.

        Args:
            staged: of each task, in order, where its rows are and in which pieces.
            writer: the name under which it is stored once.
            position: the number of the batch among the writer's, from 1 on.
            query: the streaming query in which rows are written.
            streaming: does that query itself write?
            unique: as in `packed.PackedEvents`.

        Raises:
            WriterError: the name is another's.
            TocsinError: nothing was stored.
        """

    def clear(self) -> None:
        """Give a batch up: remove what was staged; on the driver."""


class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, path: str, pieces: list[Piece], query: str | None) -> None:
        """Name the place, the chunks in it, and the streaming query the task belongs to."""
        self.path, self.pieces, self.query = path, pieces, query


class _Sink:
    """What both writers do. Made on the driver, sent to the executors."""

    def __init__(self, options: WriteOptions, schema: pa.Schema, whose: str) -> None:
        self.options = options
        self.extra = options.extra_columns
        self.unique = "id" not in schema.names  # else the journal compares them with what it has
        Frames(schema, extra=self.extra)  # raises here, before any row is read
        self.target: Target
        if options.staging is None:
            address = Address(options.url, options.token, options.ca, options.patience)
            self.target = NodeTarget(address, _digest(whose), options.writer or "spark")
        else:
            self.target = FileTarget(options.url, Stage(options.staging, whose))

    def write_rows(self, batches: Iterator[pa.RecordBatch], ids: str, query: str | None) -> Staged:
        """Turn the rows of one task into events and stage them."""
        partition = _task().partitionId()
        rows = _Rows(batches, f"{ids}-{partition}-", self.extra)
        with self.target.attempt(partition) as staged:
            for chunk, count in self._packed(rows, partition):
                staged.add(chunk, count)
        return Staged(staged.path, staged.pieces, query)

    def _packed(self, rows: _Rows, partition: int) -> Iterator[tuple[bytearray, int]]:
        try:
            yield from pack(rows, MAX_EVENT_BYTES, self.target.most, self.target.size)
        except EventError as error:
            message = f"row {rows.given + 1} of partition {partition} is no event: {error.message}"
            raise EventError(message, field=error.field, help=error.help) from None

    def store(self, messages: Sequence[Staged], position: int | None, *, streaming: bool) -> None:
        """Store what was staged, in the order of partitions, all or nothing."""
        staged = [(each.path, each.pieces) for each in messages]
        query = messages[0].query if messages else None
        self.target.store(staged, self.options.writer, position, query, streaming=streaming, unique=self.unique)


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

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what was staged."""
        self.target.clear()


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

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Forget what was staged for a batch."""
        self.target.clear()


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
                if is_reserved(event.type, event.source):  # a node would refuse it, and so does a file
                    raise _reserved(event)
                yield event
                self.given += 1  # after the yield: the event is packed
            done += batch.num_rows

    def _id(self, done: int, row: int) -> str:
        return f"{self._ids}{done + row}"


def _reserved(event: Event) -> EventError:
    error = refused(event)
    if event.source != SOURCE:
        return error
    help = "what ts.detect gives can be stored under a source of yours: .withColumn('source', F.lit('/detected'))"
    return EventError(error.message, field=error.field, help=help)


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise TocsinError("rows are written by tasks of Spark only")
    return context


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=10).hexdigest()
