"""Statistics of what comes: rates, the types that come most, and how long which source has been silent.

Each record (`tocsin.statistics`) is about a stretch of the journal, and follows the one before; the node stores it
once, under the offset at which it ends. Nothing is told while nothing comes. The node's own records do not count.

Not promised: figures of every source. Of those that are known the `KEPT` heard of last are remembered.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tocsin.clock import SECOND, as_datetime
from tocsin.journal.reader import open_reader
from tocsin.model import time_text
from tocsin.node.channel import Counted, Line

__all__ = ["Statistics", "summary"]

WRITER = "tocsin/pipeline/statistics"
KEPT = 1_000
SHOWN = 10
_COLUMNS = "arrived TIMESTAMP, source STRING, type STRING"


class _Known(msgspec.Struct):
    upto: int
    """So far it has counted."""
    instant: int
    """Journal time there."""
    heard: dict[str, int]
    """When sources were heard of last, in microseconds."""


class Statistics:
    """Counts one stretch after the other."""

    EVERY = 10.0
    """Seconds between two looks."""

    def __init__(self, spark: SparkSession, line: Line, source: dict[str, str], journal: str, directory: Path) -> None:
        """Go on where the last one was; at first, with what comes now.

        Args:
            spark: the session.
            line: to the node.
            source: options of the journal as a source.
            journal: the path of its file.
            directory: where it keeps how far it is.
        """
        self._spark, self._line, self._source, self._journal = spark, line, source, journal
        self._file = directory / "statistics.json"
        try:
            self._known = msgspec.json.decode(self._file.read_bytes(), type=_Known)
        except (OSError, msgspec.MsgspecError):
            self._known = _Known(self._head(), 0, {})

    def _head(self) -> int:
        with closing(open_reader(self._journal)) as reader:
            return reader.head

    def run(self) -> None:
        """Count what has come since."""
        head = self._head()
        first = self._known.upto + 1
        if head < first:
            self._known.upto = min(self._known.upto, head)  # the journal was replaced by a shorter one
            return
        events = self._spark.read.format("tocsin").options(**self._source).schema(_COLUMNS)
        events = events.option("startingOffset", first).option("endingOffset", head).option("allowGaps", "true")
        found = (
            events.load()
            .groupBy("source", "type")
            .agg(F.count("*").alias("events"), F.max(F.unix_micros("arrived")).alias("last"))
            .orderBy(F.desc("events"))
            .limit(100_000)
            .collect()
        )
        self._known.upto = head
        if found:
            rows = [(row.source, row.type, row.events, row.last) for row in found]
            data = summary(rows, self._known.heard, first, head, self._known.instant)
            self._known.instant = max(row[3] for row in rows)
            self._line.ask(Counted(WRITER, head, data))
        self._file.write_bytes(msgspec.json.encode(self._known))


def summary(
    rows: list[tuple[str, str, int, int]], heard: dict[str, int], first: int, last: int, since: int
) -> dict[str, Any]:
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

    silent = sorted(heard.items(), key=lambda item: item[1])[:SHOWN]
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
        "silent": [{"source": source, "seconds": round((now - at) / SECOND, 3)} for source, at in silent if at < now],
    }
