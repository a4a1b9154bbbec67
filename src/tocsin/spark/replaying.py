"""Composite events in a batch: each bucket's chunks go in order through one engine, from the first event to the last.

    packed rows ─ to the task of their bucket, sorted by offset ─▶ one new engine ─▶ derived events

Promised: what a detector finds that is fed all events in order, then told how late it is: the time of the last row, or
`until`. It does not matter how the events lay in partitions; where they lie in the order of offsets, as the source
gives them, a task holds one chunk at a time, else those that overlap.
Not promised: an order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.composite.deriving import Derived
from tocsin.spark.chunks import Chunk
from tocsin.spark.detected import DETECTED, batches
from tocsin.spark.detecting import Division, Plan
from tocsin.spark.engines import Engine, feed

__all__ = ["replay"]

_SLOT = "tocsin_slot"
"""The column that says which task has the engine of a row."""


def replay(packed: DataFrame, plan: Plan, until: int | None = None) -> DataFrame:
    """What engines detect in a batch.

    Args:
        packed: as `packing.pack` gives it.
        plan: what it was packed for.
        until: let time pass up to this instant in the end, in microseconds; None: up to the last event.
    """
    slot, slots = _slots(plan)
    rows = packed.withColumn(_SLOT, slot).repartitionById(slots, _SLOT).drop(_SLOT)
    ordered = rows.sortWithinPartitions("division", "bucket", "first", "last")
    return ordered.mapInArrow(_Replaying(plan, until).rows, DETECTED)


def _slots(plan: Plan) -> tuple[Column, int]:
    """A number for every engine, and how many there are: each has a task to itself."""
    slot, slots = F.lit(0), 0
    for division in plan.divisions:
        slot = F.when(F.col("division") == division.number, F.col("bucket") + F.lit(slots)).otherwise(slot)
        slots += plan.buckets_of(division)
    return slot.cast("int"), slots


# -- in tasks


class _Replaying(msgspec.Struct, frozen=True):
    """What a task does; made in the driver, pickled to executors."""

    plan: Plan
    until: int | None

    def rows(self, packed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (number, _), rows in groupby(_chunks(packed), key=lambda row: row[:2]):
            division = self.plan.division(number)
            for found in self._detected(division, (chunk for _, _, chunk in rows)):
                yield from batches(found)

    def _detected(self, division: Division, chunks: Iterable[Chunk]) -> Iterator[Derived]:
        """What one engine finds; chunks come in the order of their first offsets."""
        engine = Engine(division.detector(), division.filters, division.emits)
        together: list[Chunk] = []
        end = 0
        for chunk in chunks:
            if together and chunk.first > end:
                yield feed(engine, together)
                together = []
            together.append(chunk)
            end = max(end, chunk.last)
        yield feed(engine, together)
        if self.until is not None:
            last = Derived()
            engine.detector.pass_rows(self.until, last, division.emits)
            yield last


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, Chunk]]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("division", "bucket", *Chunk._fields)]
        for division, bucket, *chunk in zip(*columns, strict=True):
            yield division, bucket, Chunk(*chunk)
