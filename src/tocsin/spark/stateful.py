"""Detection in a stream: the state of each engine in Spark's state store, written as it changes.

    packed rows of a batch, by slot: one for each bucket ─▶ its engines, one for each division ─▶ detected
                                    state: snapshots + chunks since ─┘

What is stored of an engine is a snapshot of its detector and the packed chunks of the batches since. A batch adds its
chunks, so what it writes grows with what has come, not with what is open. When the chunks have become larger than the
snapshot, a new one takes the place of both: over time that is as much again. The engine itself lives in a process
beside Spark's (`keeper`); it is known by a token that is stored with each batch.

Rows of earlier batches say up to which offset everything was seen; what comes later from there is left out, whatever
types those rows had (`packing.NOBODY`).

All divisions of a bucket lie together, and every bucket is called in every batch: so it notices at once when a division
or a definition is gone, and what it had half detected goes with it.

Promised: state and place in the source are committed together by Spark, so a query that is restarted, or a task that is
tried again, detects what it would have detected, once. What is stored has a version, and an unknown one is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from tocsin.errors import DefinitionError
from tocsin.spark import keeper
from tocsin.spark.chunks import Chunk, passed
from tocsin.spark.chunks import stream as stream_of
from tocsin.spark.detected import DETECTED, nothing
from tocsin.spark.detecting import Division, Plan
from tocsin.spark.engines import Answer, Stored, Work, division_mark, written
from tocsin.spark.packing import NOBODY

__all__ = ["METRICS", "stream", "streamed", "unpacked"]

METRICS = "tocsin.detect"
"""How the name of a query's observed metrics begins; the first of its definitions follows, and a number if others of
this session have that name already. They say how many matches had no key, and how many events had come before: neither
takes part."""

PIECE = 4 << 20
"""Bytes to an entry of the state store."""
LEAST = 256 << 10
"""Bytes of chunks for which no snapshot is worth while."""
SEVERAL = 8
"""Entries of batches that become one."""
_VERSION = 1
_DETECTED = StructType(
    [StructField("detected", BinaryType()), StructField("keyless", LongType()), StructField("repeated", LongType())]
)
_HEAD = StructType([StructField("head", BinaryType())])
_NUMBER = StructType([StructField("number", LongType())])
_PIECE = StructType([StructField("piece", BinaryType())])


def stream(packed: DataFrame, plan: Plan) -> DataFrame:
    """What is detected in packed rows of a stream."""
    return streamed(packed, plan).mapInArrow(_unpacked, DETECTED)


def streamed(packed: DataFrame, plan: Plan) -> DataFrame:
    """The same, still packed: one column, of which each value goes to `unpacked`."""
    grouped = packed.groupBy("slot")
    found = grouped.transformWithStateInPandas(Detection(plan), _DETECTED, "Append", "None")
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("keyless", "repeated")]
    return found.observe(_metrics(packed, plan), *sums).select("detected")


_named: dict[str, list[object]] = {}


def _metrics(packed: DataFrame, plan: Plan) -> str:
    """A name that no other detection has: Spark refuses two of one name in a query. The same one has the same again."""
    name = f"{METRICS}.{min(min(each.emits) for each in plan.divisions)}"
    what = ([division_mark(each) for each in plan.divisions], packed.semanticHash())
    known = _named.setdefault(name, [])
    if what not in known:
        known.append(what)
    number = known.index(what)
    return f"{name}.{number + 1}" if number else name


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for each in batch.column(0):
            yield from unpacked(each.as_buffer())


def unpacked(content: Any) -> Iterator[pa.RecordBatch]:
    """What a value of `streamed` holds, in the columns of `detected`."""
    with pa.ipc.open_stream(content) as reader:
        yield from reader


class _Entry(msgspec.Struct, array_like=True):
    """Something that lies in pieces."""

    first: int
    count: int
    size: int
    """Bytes."""
    rank: int = 0
    """Of batches: how often they were put together; see `_together`."""


class _Head(msgspec.Struct, array_like=True):
    """What is stored of one division in a bucket, and where."""

    lineage: bytes
    token: bytes = b""
    mark: bytes = b""
    """Of the definitions that its engine has; empty: some are missing."""
    snapshot: _Entry | None = None
    batches: list[_Entry] = []


class _Kept(msgspec.Struct, array_like=True):
    """What is stored of a bucket."""

    version: int
    buckets: int
    """How many there were when it began."""
    next: int = 0
    """The number of the next piece."""
    heads: dict[int, _Head] = {}
    """By division."""
    seen: int = 0
    """The highest offset of all rows that came, in whatever bucket."""


def read_kept(content: bytes, buckets: int) -> _Kept:
    """What is stored of a bucket.

    Raises:
        DefinitionError: it has a version that this program does not know, or another number of buckets.
    """
    version = msgspec.msgpack.decode(content, type=tuple[Any, ...])[0]
    if version != _VERSION:
        raise DefinitionError(
            f"the state in the checkpoint has version {version!r}, and this program knows {_VERSION}",
            help="use the program that wrote it, or begin with a new checkpoint",
        )
    kept = msgspec.msgpack.decode(content, type=_Kept)
    if kept.buckets != buckets:
        raise DefinitionError(
            f"the checkpoint has {kept.buckets} buckets of keys, and the query {buckets}",
            field="buckets",
            help=f"give buckets={kept.buckets}, or begin with a new checkpoint",
        )
    return kept


class Detection(StatefulProcessor):
    """Spark calls it for each bucket of each batch."""

    def __init__(self, plan: Plan) -> None:
        """Take what is to be detected."""
        self._plan = plan
        self._marks = {division.number: division_mark(division) for division in plan.divisions}

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._head = handle.getValueState("head", _HEAD)
        self._pieces = handle.getMapState("pieces", _NUMBER, _PIECE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Do a batch for one bucket."""
        chunks: dict[int, list[Chunk]] = {}
        buckets, seen = set(), 0
        for number, bucket, chunk in (row for frame in rows for row in _chunks(frame)):
            buckets.add(bucket)
            seen = max(seen, chunk.last)
            if number != NOBODY:
                chunks.setdefault(number, []).append(chunk)
        (bucket,) = buckets
        kept, answers = self._read(), list[Answer]()
        mine = [division for division in self._plan.divisions if bucket < self._plan.buckets_of(division)]
        gone = kept.heads.keys() - {division.number for division in mine}
        for number in gone:  # if it comes again it begins anew: it has not seen what comes now
            self._forget(kept.heads.pop(number))
        before, kept.seen = kept.seen, max(kept.seen, seen)
        changed = bool(gone) or kept.seen > before
        for division in mine:
            came, head = chunks.get(division.number, []), kept.heads.get(division.number)
            if any(chunk.first <= before for chunk in came):
                came.append(passed(before))
            if came or head is None or head.mark != self._marks[division.number]:
                head = kept.heads.setdefault(division.number, _Head(os.urandom(16)))
                answers.append(self._batch(kept, head, division, came))
                changed = True
        if changed:
            self._head.update((msgspec.msgpack.encode(kept),))
        told = [each for answer in answers for each in answer.detected]
        counts = [sum(answer.keyless for answer in answers), sum(answer.repeated for answer in answers)]
        if any(counts) and not told:
            told = [stream_of(nothing())]
        if told:
            import pandas as pd  # type: ignore[import-untyped]  # takes long, and only tasks need it

            rest = [0] * (len(told) - 1)
            yield pd.DataFrame({"detected": told, "keyless": [counts[0], *rest], "repeated": [counts[1], *rest]})

    def _batch(self, kept: _Kept, head: _Head, division: Division, chunks: list[Chunk]) -> Answer:
        """Have an engine do a batch, and store what it must know the next time."""
        content = written(chunks)
        size = sum(entry.size for entry in head.batches) + len(bytes(content))
        is_long = head.snapshot is not None and size > max(LEAST, head.snapshot.size)
        save = head.snapshot is None or is_long
        work = Work(head.lineage, head.token, os.urandom(16), division, content, save)
        context = TaskContext.get()
        answer = keeper.do(work, context.partitionId() if context is not None else 0, lambda: self._stored(head))
        if answer.snapshot is not None:
            self._forget(head)
            head.snapshot, head.batches = self._write(kept, answer.snapshot), []
        elif chunks:
            head.batches.append(self._write(kept, msgspec.msgpack.encode([content])))
            self._together(kept, head)
        head.token, head.mark = work.after, self._marks[division.number] if answer.is_done else b""
        return answer

    # -- the store

    def _read(self) -> _Kept:
        found, buckets = self._head.get(), self._plan.buckets
        return _Kept(_VERSION, buckets) if found is None else read_kept(bytes(found[0]), buckets)

    def _stored(self, head: _Head) -> Stored:
        batches = [batch for entry in head.batches for batch in _read_batches(self._content(entry))]
        return Stored(None if head.snapshot is None else self._content(head.snapshot), batches)

    def _content(self, entry: _Entry) -> bytes:
        pieces = []
        for number in range(entry.first, entry.first + entry.count):
            found = self._pieces.getValue((number,))
            assert found is not None, f"piece {number} of the state is missing"
            pieces.append(bytes(found[0]))
        return b"".join(pieces)

    def _write(self, kept: _Kept, content: bytes, rank: int = 0) -> _Entry:
        entry = _Entry(kept.next, -(-len(content) // PIECE), len(content), rank)
        for place in range(entry.count):
            piece = content[place * PIECE : (place + 1) * PIECE]
            self._pieces.updateValue((entry.first + place,), (piece,))
        kept.next += entry.count
        return entry

    def _together(self, kept: _Kept, head: _Head) -> None:
        """Put small batches together, so that many of them are few entries; each is written again now and then only."""
        while len(head.batches) >= SEVERAL and head.batches[-SEVERAL].rank == head.batches[-1].rank:
            last = head.batches[-SEVERAL:]
            content = [batch for entry in last for batch in _read_batches(self._content(entry))]
            for entry in last:
                self._remove(entry)
            entry = self._write(kept, msgspec.msgpack.encode(content), last[-1].rank + 1)
            head.batches[-SEVERAL:] = [entry]

    def _forget(self, head: _Head) -> None:
        for entry in (head.snapshot, *head.batches):
            if entry is not None:
                self._remove(entry)

    def _remove(self, entry: _Entry) -> None:
        for number in range(entry.first, entry.first + entry.count):
            self._pieces.removeKey((number,))


_read_batches = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def _chunks(frame: Any) -> Iterator[tuple[int, int, Chunk]]:
    """Division, bucket and chunk of each row; all have the same bucket."""
    names = ("division", "bucket", *Chunk._fields[:-1])
    places = [frame[name].astype("int64").tolist() for name in names]
    for number, bucket, *place, content in zip(*places, frame[Chunk._fields[-1]], strict=True):
        yield number, bucket, Chunk._make([*place, bytes(content) if isinstance(content, bytes | bytearray) else None])
