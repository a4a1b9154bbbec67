"""Statistics of what comes: rates, the types that come most, and how long which source has been silent.

Each record (`tocsin.statistics`) is about a stretch of the journal, and follows the one before. How far they are is
stored by the node in one commit with the record, so each stretch is told once. While nothing comes nothing is told, but
that a source has been silent for `QUIET` seconds. The node's own records do not count.

A few thousand events are counted here: a job of Spark's would cost more than they do, and hold up detection. When there
is more to catch up with, Spark counts, with the same code.

Not promised: figures of every source. Of those that are known the `KEPT` heard of last are remembered.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from tocsin.clock import SECOND, as_datetime
from tocsin.journal.reader import open_reader
from tocsin.model import time_text
from tocsin.node.channel import Counted, Line, Recall
from tocsin.spark.columns import SOURCE_ARROW
from tocsin.spark.options import read_options
from tocsin.spark.ranges import Range
from tocsin.spark.scan import Scan

__all__ = ["Statistics", "silence", "summary"]

KEPT = 1_000
SHOWN = 10
QUIET = 60.0
"""Seconds after which it is told that a source is silent."""
_FEW = 100_000
"""Events that are counted here."""
_NAMES = ("arrived", "source", "type")
_READ = "arrived TIMESTAMP, source STRING, type STRING"
_COUNTED = "source STRING, type STRING, events BIGINT, last BIGINT"
Row = tuple[str, str, int, int]
"""Source, type, how many events, and when the last of them arrived, in microseconds."""


class Known(msgspec.Struct):
    """What statistics go on from."""

    upto: int
    """So far it has counted."""
    instant: int = 0
    """Journal time there."""
    heard: dict[str, int] = {}
    """When sources were heard of last, in microseconds."""
    looked: int = 0
    """Until then it was told who is silent."""


class Statistics:
    """Counts one stretch after the other."""

    EVERY = 10.0
    """Seconds between two looks."""

    def __init__(self, spark: SparkSession, line: Line, source: Callable[[], dict[str, str]], journal: str) -> None:
        """Go on where the last one was; at first, with what comes now.

        Args:
            spark: the session.
            line: to the node.
            source: gives the options of the journal as a source.
            journal: the path of its file.
        """
        self._spark, self._line, self._source, self._journal = spark, line, source, journal
        kept: bytes | None = line.ask(Recall(), bytes | None)
        self._known = msgspec.msgpack.decode(kept, type=Known) if kept is not None else Known(self._head())

    def _head(self) -> int:
        with closing(open_reader(self._journal)) as reader:
            return reader.head

    def run(self) -> None:
        """Count what has come since."""
        before, head, now = self._known, self._head(), time.time_ns() // 1000
        rows = self._counted(before.upto + 1, head) if head > before.upto else []
        known = msgspec.structs.replace(before, upto=head, heard=dict(before.heard), looked=now)
        if rows:
            data = summary(rows, known.heard, before.upto + 1, head, before.instant)
            known.instant = max(row[3] for row in rows)
        elif any(before.looked < at + QUIET * SECOND <= now for at in known.heard.values()):
            data = silence(known.heard, before.upto, now)
        else:
            self._known = known  # nothing to tell, and nothing that would be missed
            return
        if self._line.ask(Counted(msgspec.msgpack.encode(known), data), bool):  # else the next one tells both
            self._known = known

    def _counted(self, first: int, last: int) -> list[Row]:
        if last - first < _FEW:
            options = read_options({"url": f"file:{self._journal}", "allowGaps": "true"}, streaming=False)
            scan = Scan(options, pa.schema([SOURCE_ARROW.field(name) for name in _NAMES]))
            with closing(scan.open()) as origin:
                first = max(first, origin.first)
            return _added(count(scan.read([Range(first, last)]))) if first <= last else []
        events = self._spark.read.format("tocsin").options(**self._source()).schema(_READ)
        events = events.option("startingOffset", first).option("endingOffset", last).option("allowGaps", "true")
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "statistics")
        return _added(events.load().mapInArrow(count, _COUNTED).toArrow().to_batches())


def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the events of batches, each by itself; runs in tasks."""
    for batch in batches:
        found = pa.table(batch).group_by(["source", "type"]).aggregate([("arrived", "count"), ("arrived", "max")])
        last = found["arrived_max"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        columns = [found["source"], found["type"], found["arrived_count"], last]
        table = pa.table(columns, names=["source", "type", "events", "last"])
        yield from table.combine_chunks().to_batches()


def _added(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    events, last = Counter[tuple[str, str]](), dict[tuple[str, str], int]()
    for batch in batches:
        for source, type, number, at in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            events[source, type] += number
            last[source, type] = max(at, last.get((source, type), 0))
    return [(*key, number, last[key]) for key, number in events.items()]


def silence(heard: dict[str, int], last: int, now: int) -> dict[str, Any]:
    """What is told when nothing has come for a while."""
    return {
        "first": last + 1,
        "last": last,
        "until": time_text(as_datetime(now)),
        "events": 0,
        "silent": _silent(heard, now),
    }


def _silent(heard: dict[str, int], now: int) -> list[dict[str, Any]]:
    longest = sorted(heard.items(), key=lambda item: item[1])[:SHOWN]
    return [{"source": source, "seconds": round((now - at) / SECOND, 3)} for source, at in longest if at < now]


def summary(rows: list[Row], heard: dict[str, int], first: int, last: int, since: int) -> dict[str, Any]:
    """The figures of a stretch; `heard` is brought up to date.

    Args:
        rows: source, type, how many events, and when the last arrived (microseconds).
        heard: when sources were heard of last.
        first: the first offset.
        last: the last offset.
        since: journal time where the stretch begins; 0: not known.
    """
    now = max(row[3] for row in rows)
    types, sources = Counter[str](), Counter[str]()
    for source, type, events, at in rows:
        types[type] += events
        sources[source] += events
        heard[source] = max(at, heard.get(source, 0))
    for source in sorted(heard, key=heard.__getitem__)[: max(0, len(heard) - KEPT)]:
        del heard[source]
    seconds = (now - since) / SECOND if since else None
    total = types.total()

    def rate(events: int) -> float | None:
        return round(events / seconds, 3) if seconds else None

    return {
        "first": first,
        "last": last,
        "until": time_text(as_datetime(now)),
        "seconds": round(seconds, 3) if seconds is not None else None,
        "events": total,
        "rate": rate(total),
        "sources": len(sources),
        "types": [{"type": type, "events": count, "rate": rate(count)} for type, count in types.most_common(SHOWN)],
        "top_sources": [
            {"source": source, "events": count, "rate": rate(count)} for source, count in sources.most_common(SHOWN)
        ],
        "silent": _silent(heard, now),
    }
