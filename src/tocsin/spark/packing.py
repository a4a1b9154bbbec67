"""Events on their way to the engines: picked, divided by key and packed, before Spark moves them between tasks.

    rows of the source ─ Spark ─▶ columns that count, NULL where the type says that a row does not
                       ─ mapInArrow ─▶ per division the rows its leaves see ─▶ per bucket one packed row
    (division, bucket, first, last, begin, time, events)

A packed row stands for a *chunk*: the rows of one Arrow batch, of which it holds those for its bucket. `first` and
`last` are the chunk's offsets, `begin` and `time` the journal times of its first and last row in microseconds. Every
bucket gets a row of every chunk, if only to learn how late it is; where no definition waits for time, rows that do not
count are left out at once. Clock records go to all. So Spark moves few rows, and
an engine that takes its chunks in order sees what a node's detector sees.

Work is done by columns. Python sees single rows only where a column holds values of several kinds.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from tocsin.composite.keys import Key, key_reader
from tocsin.composite.leaves import CLOCK, SOURCE, SYSTEM
from tocsin.errors import EventError, SchemaError
from tocsin.filters.index import Matcher
from tocsin.model import Event
from tocsin.spark.detecting import Division, Plan
from tocsin.spark.records import SourceRecords
from tocsin.spark.serving import needed

__all__ = ["PACKED", "Chunk", "Packing", "bucket_of", "chunk_events", "pack", "stream"]

PACKED = "division INT, bucket INT, first BIGINT, last BIGINT, begin BIGINT, time BIGINT, events BINARY"
"""The columns of packed rows, as Spark's DDL. `events` is NULL where a bucket has none."""

_ALWAYS = ("offset", "arrived", "type", "source", "id")
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_TIME = pa.timestamp("us", "UTC")
_ARROW = pa.schema(
    [
        ("division", pa.int32()),
        ("bucket", pa.int32()),
        *((name, pa.int64()) for name in ("first", "last", "begin", "time")),
        ("events", pa.binary()),
    ]
)

Array = np.ndarray[Any, Any]


class Chunk(NamedTuple):
    """What a bucket gets of a chunk."""

    first: int
    last: int
    begin: int
    time: int
    events: bytes | None


def pack(events: DataFrame, plan: Plan) -> DataFrame:
    """Events, batch or streaming, as packed rows.

    Raises:
        SchemaError: a column is missing, or of a type that cannot serve.
    """
    _check(events)
    nested = [f.name for f in events.schema if isinstance(f.dataType, ArrayType | MapType | StructType)]
    wanted = {*_ALWAYS, "classification", *needed(events.columns, nested, set(plan.fields))}
    columns = [name for name in events.columns if name in wanted]
    _refuse_variants(events.schema, columns)
    matters = None if plan.types is None else F.col("type").isin([*sorted(plan.types), CLOCK])
    if matters is not None and not plan.is_timed:  # nobody will miss the others
        events, matters = events.where(matters), None
    chosen = []
    for name in columns:
        column = F.col(f"`{name.replace('`', '``')}`")
        if name == "offset":
            column = column.cast("bigint")
        elif matters is not None and name != "arrived":
            column = F.when(matters, column)
        chosen.append(column.alias(name))
    return events.select(*chosen).mapInArrow(Packing(plan).rows, PACKED)


def _check(events: DataFrame) -> None:
    kinds = {field.name: field.dataType for field in events.schema}
    if twice := sorted({name for name in events.columns if events.columns.count(name) > 1}):
        raise SchemaError(f"two columns are named {twice[0]}", field=twice[0], help="rename one")
    wanted: dict[str, Any] = {"offset": _WHOLE, "arrived": TimestampType, **dict.fromkeys(_ALWAYS[2:], StringType)}
    for name, kind in wanted.items():
        if not isinstance(kinds.get(name), kind):
            what = "lack the column" if name not in kinds else f"have {kinds[name].simpleString()} for"
            raise SchemaError(
                f"events {what} {name}",
                field=name,
                help="the source has offset BIGINT, arrived TIMESTAMP (journal time), type, source and id STRING",
            )


def _refuse_variants(schema: StructType, columns: list[str]) -> None:
    for name in columns:
        if name not in ("attributes", "data") and isinstance(schema[name].dataType, VariantType):
            raise SchemaError(
                f"the column {name} is a VARIANT", field=name, help="cast it to a type, or leave it out: drop(…)"
            )


# -- in tasks


class Packing(msgspec.Struct, frozen=True):
    """What a task does; made in the driver, pickled to executors."""

    plan: Plan

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: packed rows."""
        pickers = [_Picker(division, self.plan.buckets_of(division)) for division in self.plan.divisions]
        for batch in batches:
            if batch.num_rows:
                yield _packed(_in_order(batch), pickers)


def _packed(batch: pa.RecordBatch, pickers: Sequence[_Picker]) -> pa.RecordBatch:
    offsets, times = batch.column("offset").to_numpy(), _micros(batch.column("arrived"))
    chunk = (int(offsets[0]), int(offsets[-1]), int(times[0]), int(times[-1]))
    made: list[tuple[int, int, int, int, int, int, bytes | None]] = []
    kinds = batch.column("type")
    clocks = np.flatnonzero(_true(pc.equal(kinds, CLOCK)))
    is_event = pc.and_(kinds.is_valid(), pc.invert(pc.fill_null(pc.starts_with(kinds, SYSTEM), True)))
    is_event = _true(pc.and_(is_event, pc.fill_null(pc.not_equal(batch.column("source"), SOURCE), True)))
    place = batch.schema.get_field_index("arrived")
    timed = batch.set_column(place, "arrived", pa.array(times, _TIME))
    for picker in pickers:
        rows, buckets = picker.pick(batch, is_event)
        for bucket in range(picker.buckets):
            mine = rows if picker.buckets == 1 else rows[buckets == bucket]
            if len(clocks):
                mine = np.union1d(mine, clocks)
            packed = stream(timed.take(pa.array(mine))) if len(mine) else None
            made.append((picker.number, bucket, *chunk, packed))
    columns = zip(*made, strict=True)
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


def _in_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in the order of their offsets, with journal times that do not decrease."""
    for name in ("offset", "arrived"):
        if batch.column(name).null_count:
            raise EventError(f"{name} is NULL in an event", field=name, help="leave such rows out")
    offsets = batch.column("offset").to_numpy()
    if len(offsets) > 1 and not (offsets[1:] > offsets[:-1]).all():
        batch = batch.take(pa.array(np.argsort(offsets, kind="stable")))
    return batch


def _micros(column: pa.Array) -> Array:
    return np.maximum.accumulate(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy())


def _true(column: pa.Array) -> Array:
    found: Array = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return found


class _Picker:
    """Finds the rows of a division in a batch, and their buckets."""

    def __init__(self, division: Division, buckets: int) -> None:
        self._division, self.number, self.buckets = division, division.number, buckets
        self._types = None if division.types is None else pa.array(sorted(division.types), pa.string())
        self._matcher = None if division.is_sure else Matcher(enumerate(division.filters))
        self._paths = [tuple(field.split(".")) for field in division.by]
        self._read_key = key_reader(division.by)

    def pick(self, batch: pa.RecordBatch, is_event: Array) -> tuple[Array, Array]:
        """Numbers of the rows that count, ascending, and the bucket of each."""
        if self._types is not None:
            is_event = is_event & _true(pc.is_in(batch.column("type"), value_set=self._types))
        rows = np.flatnonzero(is_event)
        if not len(rows) or (self._matcher is None and self.buckets == 1):
            return rows, np.zeros(len(rows), np.int64)
        mine = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
        records = SourceRecords(mine, self._division.fields)
        found = np.arange(len(rows)) if self._matcher is None else np.unique(self._matcher.match_pairs(records)[0])
        if self.buckets == 1:
            return rows[found], np.zeros(len(found), np.int64)
        buckets = self._buckets(records)[found]
        return rows[found[buckets >= 0]], buckets[buckets >= 0]

    def _buckets(self, records: SourceRecords) -> Array:
        """The bucket of each row; -1: it has no key, and no leaf will take it."""
        if len(self._paths) == 1:
            column = records.column(self._paths[0])
            if column is None:
                return np.full(len(records), -1)
            if column is not False and pa.types.is_string(column.type):
                hashes = [-1 if each is None else zlib.crc32(each) for each in column.cast(pa.binary()).to_pylist()]
                found = np.array(hashes, np.int64)
                return np.where(found < 0, -1, found % self.buckets)
            if column is not False and pa.types.is_integer(column.type):
                values = column.to_pylist()
                return np.array([-1 if each is None else bucket_of((each,), self.buckets) for each in values], np.int64)
        keys = map(self._read_key, records)
        return np.array([-1 if key is None else bucket_of(key, self.buckets) for key in keys], np.int64)


def bucket_of(key: Key, buckets: int) -> int:
    """The bucket of a key: the same on every machine, for ever."""
    found = 0
    for value in key:
        found = zlib.crc32(value.encode() if isinstance(value, str) else repr(value).encode(), found)
    return found % buckets


# -- packed events


def stream(batch: pa.RecordBatch) -> bytes:
    """A batch as Arrow's stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def chunk_events(chunk: Chunk) -> list[Event]:
    """The events of a chunk, in order."""
    if chunk.events is None:
        return []
    with pa.ipc.open_stream(chunk.events) as reader:
        batch = reader.read_next_batch()
    return SourceRecords(batch, ()).take(range(batch.num_rows))
