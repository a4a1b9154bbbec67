"""Detection in a stream: the state of each engine in Spark's state store, written as it changes.

    packed rows of a batch, by (division, bucket) ─▶ engine ─▶ detected
                                     state: snapshot + chunks since ─┘

What is stored of a bucket is a snapshot of its detector and the packed chunks of the batches since. A batch adds its
chunks, so what it writes grows with what has come, not with what is open. When the chunks have become larger than the
snapshot, a new one takes the place of both: over time that is as much again. The engine itself lives in a process
beside Spark's (`keeper`); it is known by a token that is stored with each batch.

Promised: state and place in the source are committed together by Spark, so a query that is restarted, or a task that is
tried again, detects what it would have detected, once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from tocsin.errors import DefinitionError
from tocsin.spark import keeper
from tocsin.spark.detected import RAW
from tocsin.spark.detecting import Plan
from tocsin.spark.engines import Stored, Work
from tocsin.spark.packing import Chunk

__all__ = ["stream"]

PIECE = 4 << 20
"""Bytes to an entry of the state store."""
LEAST = 256 << 10
"""Bytes of chunks for which no snapshot is worth while …"""
BATCHES = 200
"""… nor for fewer batches."""
_DETECTED = StructType([StructField("detected", BinaryType())])
_HEAD = StructType([StructField("head", BinaryType())])
_NUMBER = StructType([StructField("number", LongType())])
_PIECE = StructType([StructField("piece", BinaryType())])


def stream(packed: DataFrame, plan: Plan) -> DataFrame:
    """Raw columns of `detected`, out of packed rows of a stream."""
    grouped = packed.groupBy("division", "bucket")
    detected = grouped.transformWithStateInPandas(Detection(plan), _DETECTED, "Append", "None")
    return detected.mapInArrow(_unpacked, RAW)


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for each in batch.column(0):
            with pa.ipc.open_stream(each.as_buffer()) as reader:
                yield from reader


class _Entry(msgspec.Struct, array_like=True):
    """Something that lies in pieces."""

    first: int
    count: int


class _Head(msgspec.Struct, array_like=True):
    """What is stored of a bucket, and where."""

    lineage: bytes
    token: bytes
    buckets: int
    """How many there were when it began."""
    next: int = 0
    """The number of the next piece."""
    snapshot: _Entry | None = None
    snapshot_bytes: int = 0
    batches: list[_Entry] = []
    batch_bytes: int = 0


class Detection(StatefulProcessor):
    """Spark calls it for each bucket of each batch."""

    def __init__(self, plan: Plan) -> None:
        """Take what is to be detected."""
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._head = handle.getValueState("head", _HEAD)
        self._pieces = handle.getMapState("pieces", _NUMBER, _PIECE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Do a batch for one bucket."""
        number = int(key[0])
        chunks = [chunk for frame in rows for chunk in _chunks(frame)]
        division = next((each for each in self._plan.divisions if each.number == number), None)
        if division is None:
            return
        head = self._read(self._plan.buckets_of(division))
        content = msgspec.msgpack.encode(chunks)
        is_long = head.batch_bytes + len(content) > max(LEAST, head.snapshot_bytes) or len(head.batches) >= BATCHES
        work = Work(head.lineage, head.token, os.urandom(16), division, chunks, save=head.snapshot is None or is_long)
        context = TaskContext.get()
        answer = keeper.do(work, context.partitionId() if context is not None else 0, lambda: self._stored(head))
        if answer.snapshot is not None:
            for entry in (head.snapshot, *head.batches):
                self._remove(entry)
            head.snapshot, head.snapshot_bytes = self._write(head, answer.snapshot), len(answer.snapshot)
            head.batches, head.batch_bytes = [], 0
        else:
            head.batches.append(self._write(head, content))
            head.batch_bytes += len(content)
        head.token = work.after
        self._head.update((msgspec.msgpack.encode(head),))
        if answer.detected:
            import pandas as pd  # type: ignore[import-untyped]  # takes long, and only tasks need it

            yield pd.DataFrame({"detected": answer.detected})

    # -- the store

    def _read(self, buckets: int) -> _Head:
        found = self._head.get()
        if found is None:
            return _Head(os.urandom(16), b"", buckets)
        head = msgspec.msgpack.decode(bytes(found[0]), type=_Head)
        if head.buckets != buckets:
            raise DefinitionError(
                f"the checkpoint has {head.buckets} buckets of keys, and the query {buckets}",
                field="buckets",
                help=f"give buckets={head.buckets}, or begin with a new checkpoint",
            )
        return head

    def _stored(self, head: _Head) -> Stored:
        batches = [msgspec.msgpack.decode(self._content(each), type=list[Chunk]) for each in head.batches]
        return Stored(None if head.snapshot is None else self._content(head.snapshot), batches)

    def _content(self, entry: _Entry) -> bytes:
        pieces = []
        for number in range(entry.first, entry.first + entry.count):
            found = self._pieces.getValue((number,))
            assert found is not None, f"piece {number} of the state is missing"
            pieces.append(bytes(found[0]))
        return b"".join(pieces)

    def _write(self, head: _Head, content: bytes) -> _Entry:
        entry = _Entry(head.next, -(-len(content) // PIECE))
        for place in range(entry.count):
            piece = content[place * PIECE : (place + 1) * PIECE]
            self._pieces.updateValue((entry.first + place,), (piece,))
        head.next += entry.count
        return entry

    def _remove(self, entry: _Entry | None) -> None:
        for number in range(entry.first, entry.first + entry.count) if entry is not None else ():
            self._pieces.removeKey((number,))


def _chunks(frame: Any) -> list[Chunk]:
    places = [frame[name].astype("int64").tolist() for name in Chunk._fields[:-1]]
    contents = [bytes(each) if isinstance(each, bytes | bytearray) else None for each in frame[Chunk._fields[-1]]]
    return [Chunk(*each) for each in zip(*places, contents, strict=True)]
