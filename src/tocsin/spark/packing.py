"""Events on their way to the engines: picked, divided by key and packed, before Spark moves them between tasks.

    rows of the source ─ Spark ─▶ columns that count, NULL where the type says that a row does not
                       ─ mapInArrow ─▶ per division what its leaves see (`picking`) ─▶ per bucket one packed row
    (slot, division, bucket, first, last, begin, time, keyless, events)

A packed row stands for a *chunk*: the rows of one Arrow batch, of which it holds those for its bucket (`chunks`).
`first` and `last` are the chunk's offsets, `begin` and `time` the journal times of its first and last row in
microseconds. Every bucket gets a row of every chunk, if only to learn how late it is; where no definition waits for
time, rows that do not count are left out at once; if the stream may bring rows late, their highest offset is told.
Clock records go to all. So Spark moves few rows, and an engine that takes its chunks in order sees what a node's
detector sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from tocsin.composite.leaves import CLOCK, SOURCE, SYSTEM
from tocsin.composite.rows import CLOCK_ROW
from tocsin.errors import EventError, SchemaError
from tocsin.spark.chunks import Chunk, stream
from tocsin.spark.detecting import Plan
from tocsin.spark.given import ALWAYS, WHOLE, comes_in_order, refuse_doubles, refuse_variants
from tocsin.spark.picking import Picker, picker_of
from tocsin.spark.serving import needed
from tocsin.spark.slots import slots

__all__ = ["NOBODY", "PACKED", "Packing", "columns_of", "pack"]

PACKED = "slot INT, division INT, bucket INT, first BIGINT, last BIGINT, begin BIGINT, time BIGINT, keyless BIGINT"
PACKED += ", events BINARY"
"""The columns of packed rows, as Spark's DDL. `events` is NULL where a bucket has none."""
NOBODY = -1
"""In place of a division: a row that brings nothing. Every bucket of a stream gets one from every task, so that it
learns of the plan, also where no event counts: a definition that has gone must not know later what came meanwhile. Its
`last` is the highest offset that the task has seen, of rows that count and of others: what comes later from below it is
late."""
_ENOUGH = 10_000  # rows that count, to a chunk, where others are left out
_EVERY = -2  # in place of a bucket: all of them; -1 is no bucket at all, see `picking`
_ARROW = pa.schema(
    [
        *((name, pa.int32()) for name in ("slot", "division", "bucket")),
        *((name, pa.int64()) for name in Chunk._fields[:-1]),
        ("events", pa.binary()),
    ]
)

Array = np.ndarray[Any, Any]


def pack(events: DataFrame, plan: Plan) -> DataFrame:
    """Events, batch or streaming, as packed rows.

    Raises:
        SchemaError: a column is missing, or of a type that cannot serve.
    """
    _check(events)
    nested = [f.name for f in events.schema if isinstance(f.dataType, ArrayType | MapType | StructType)]
    columns = columns_of(events.columns, nested, plan)
    refuse_variants(events.schema, columns)
    matters = None if plan.types is None else F.col("type").isin([*sorted(plan.types), CLOCK])
    sifts = False
    if matters is not None and not plan.is_timed:  # nobody will miss the others …
        sifts = events.isStreaming and not comes_in_order(events)
        if not sifts:  # … nor their offsets
            events, matters = events.where(matters), None
    chosen = []
    for name in columns:
        column = F.col(f"`{name.replace('`', '``')}`")
        if name == "offset":
            column = column.cast("bigint")
        elif matters is not None and (name != "arrived" or sifts):
            column = F.when(matters, column)
        chosen.append(column.alias(name))
    return events.select(*chosen).mapInArrow(Packing(plan, events.isStreaming, sifts).rows, PACKED)


def columns_of(names: list[str], nested: Sequence[str], plan: Plan) -> list[str]:
    """The columns that can matter, of those there are; `nested` as in `serving.needed`."""
    wanted = {*ALWAYS, "classification", *needed(names, nested, set(plan.fields))}
    return [name for name in names if name in wanted]


def _check(events: DataFrame) -> None:
    kinds = {field.name: field.dataType for field in events.schema}
    refuse_doubles(events)
    wanted: dict[str, Any] = {"offset": WHOLE, "arrived": TimestampType, **dict.fromkeys(ALWAYS[2:], StringType)}
    for name, kind in wanted.items():
        if not isinstance(kinds.get(name), kind):
            what = "lack the column" if name not in kinds else f"have {kinds[name].simpleString()} for"
            raise SchemaError(
                f"events {what} {name}",
                field=name,
                help="the source has offset BIGINT, arrived TIMESTAMP (journal time), type, source and id STRING",
            )


# -- in tasks


class Packing(msgspec.Struct, frozen=True):
    """What a task does; made in the driver, pickled to executors."""

    plan: Plan
    is_stream: bool = True
    sifts: bool = False
    """Must rows be left out here that have none of the types that count?"""

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: packed rows."""
        pickers = [picker_of(division, self.plan.buckets_of(division)) for division in self.plan.divisions]
        known, highest = slots(self.plan.buckets), 0
        types, waiting = pa.array([*sorted(self.plan.types or ()), CLOCK]), list[pa.RecordBatch]()
        for batch in batches:
            highest = max(highest, pc.max(batch.column("offset")).as_py() or 0)
            if self.sifts:
                batch = batch.filter(pc.is_in(batch.column("type"), value_set=types))
            if batch.num_rows:
                waiting.append(batch)
            if not self.sifts or sum(each.num_rows for each in waiting) >= _ENOUGH:
                yield from _together(waiting, pickers, known)
                waiting = []
        yield from _together(waiting, pickers, known)
        if self.is_stream:
            yield _batch([(slot, NOBODY, bucket, 0, highest, 0, 0, 0, None) for bucket, slot in enumerate(known)])


def _together(
    waiting: Sequence[pa.RecordBatch], pickers: Sequence[Picker], known: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Batches as one chunk, if there are any."""
    if waiting:
        yield _packed(_in_order(pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0]), pickers, known)


def _packed(batch: pa.RecordBatch, pickers: Sequence[Picker], known: Sequence[int]) -> pa.RecordBatch:
    offsets, times = batch.column("offset").to_numpy(), _micros(batch.column("arrived"))
    chunk = (int(offsets[0]), int(offsets[-1]), int(times[0]), int(times[-1]))
    made: list[tuple[Any, ...]] = []
    kinds = batch.column("type")
    clocks = np.flatnonzero(pc.fill_null(pc.equal(kinds, CLOCK), False).to_numpy(zero_copy_only=False))
    is_event = pc.and_(kinds.is_valid(), pc.invert(pc.fill_null(pc.starts_with(kinds, SYSTEM), True)))
    is_event = pc.and_(is_event, pc.fill_null(pc.not_equal(batch.column("source"), SOURCE), True))
    for picker in pickers:
        columns, buckets, keyless = picker.pick(batch, times, is_event.to_numpy(zero_copy_only=False))
        events = columns.batch()
        if len(clocks):
            events, buckets = _with_clocks(events, buckets, offsets[clocks], times[clocks])
        for bucket in range(picker.buckets):
            mine = np.flatnonzero((buckets == bucket) | (buckets == _EVERY))
            taken = events if len(mine) == events.num_rows else events.take(pa.array(mine))
            packed = stream(taken) if len(mine) else None
            without = keyless if bucket == 0 else 0
            made.append((known[bucket], picker.division.number, bucket, *chunk, without, packed))
    return _batch(made)


def _batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


def _with_clocks(events: pa.RecordBatch, buckets: Array, offsets: Array, times: Array) -> tuple[pa.RecordBatch, Array]:
    """Events and clock records in order; these go to all buckets."""
    given = {"offset": offsets, "time": times, "seen": np.full(len(offsets), CLOCK_ROW)}
    columns = []
    for field in events.schema:
        if field.name in given:
            columns.append(pa.array(given[field.name]).cast(field.type))
        elif field.name in ("id", "source"):
            columns.append(pa.array([""] * len(offsets), field.type))
        elif field.name == "level":
            columns.append(pa.array([0] * len(offsets), field.type))
        else:
            columns.append(pa.nulls(len(offsets), field.type))
    both = pa.concat_batches([events, pa.record_batch(columns, schema=events.schema)])
    order = np.argsort(both.column("offset").to_numpy(), kind="stable")
    return both.take(pa.array(order)), np.concatenate([buckets, np.full(len(offsets), _EVERY)])[order]


def _in_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in the order of their offsets."""
    for name in ("offset", "arrived"):
        if batch.column(name).null_count:
            raise EventError(f"{name} is NULL in an event", field=name, help="leave such rows out")
    offsets = batch.column("offset").to_numpy()
    if len(offsets) > 1 and not (offsets[1:] > offsets[:-1]).all():
        batch = batch.take(pa.array(np.argsort(offsets, kind="stable")))
        offsets = batch.column("offset").to_numpy()
    if offsets[0] < 1:
        raise EventError(
            f"the offset of an event is {offsets[0]}", field="offset", help="offsets begin at 1, as in a journal"
        )
    return batch


def _micros(column: pa.Array) -> Array:
    """Journal times that do not decrease."""
    return np.maximum.accumulate(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy())
