"""The demo's two sides: the same filters over the same journal, in this process and on Spark, and whether they agree.

Each side adds up its answer: how many pairs (offset, key) it has found, and the sum of their CRC-32. The node's side
remembers its sums at every offset, so they can be compared with Spark's after each micro-batch, while events go on.
"""

from __future__ import annotations

import json
import time
import zlib
from typing import Any, NamedTuple

from tocsin.filters.index import Matcher
from tocsin.model import Event
from tocsin.spark import match, session

__all__ = ["NodeSide", "SparkSide", "Totals", "totals"]


class Totals(NamedTuple):
    """An answer in short: two sides that agree have the same."""

    pairs: int = 0
    checksum: int = 0

    def plus(self, offset: int, keys: list[Any]) -> Totals:
        """With the pairs of one more event."""
        codes = (zlib.crc32(f"{offset}:{key}".encode()) for key in keys)
        return Totals(self.pairs + len(keys), self.checksum + sum(codes))


class NodeSide:
    """Matching in this process."""

    def __init__(self, filters: dict[str, str]) -> None:
        """Compile the filters."""
        self.matcher = Matcher(filters.items())
        self.at = [Totals()]
        """What was found up to each offset."""
        self.busy = 0.0
        """Seconds spent matching."""

    def ask(self, events: list[Event]) -> list[list[Any]]:
        """Match events as they were stored, with their offsets; returns the keys of each."""
        begun = time.perf_counter()
        found = self.matcher.match_batch(events)
        self.busy += time.perf_counter() - begun
        for event, keys in zip(events, found, strict=True):
            self.at.append(self.at[-1].plus(event.offset or 0, keys))
        return found

    @property
    def rate(self) -> float:
        """Events per second of matching."""
        return (len(self.at) - 1) / self.busy if self.busy else 0.0


class SparkSide:
    """Matching on Spark: a streaming query over the journal."""

    def __init__(self, url: str, filters: dict[str, str], checkpoint: str) -> None:
        """Start Spark and the query; the journal must exist."""
        self._spark = session(app="tocsin demo")
        self._url, self._filters = url, filters
        self._found: dict[int, Totals] = {}
        events = self._spark.readStream.format("tocsin").option("url", url).load()
        self._query = (
            match(events, filters)
            .writeStream.foreachBatch(self._add_up)
            .option("checkpointLocation", checkpoint)
            .start()
        )

    def _add_up(self, pairs: Any, batch: int) -> None:
        """Called by Spark for each micro-batch. Executors do the work; two numbers come back."""
        self._found[batch] = totals(pairs)

    def progress(self) -> tuple[int, Totals]:
        """Up to which offset the query has come, and what it has found so far."""
        last = self._query.lastProgress
        if last is None or not last.sources or last.sources[0].endOffset in (None, "null"):
            return 0, Totals()
        done = [answer for batch, answer in list(self._found.items()) if batch <= last.batchId]
        return _offset(last.sources[0].endOffset), Totals(*map(sum, zip(*done, strict=True))) if done else Totals()

    @property
    def batches(self) -> int:
        """Micro-batches so far."""
        return len(self._found)

    def finish(self) -> tuple[int, Totals]:
        """Wait until all that is stored went through, and stop the query. Raises what has ended it, if so."""
        self._query.processAllAvailable()
        found = self.progress()
        self._query.stop()
        return found

    def again(self) -> tuple[Totals, float]:
        """The whole journal once more, as one batch, by now warm: what is found, and in how many seconds."""
        pairs = match(self._spark.read.format("tocsin").option("url", self._url).load(), self._filters)
        begun = time.perf_counter()
        return totals(pairs), time.perf_counter() - begun

    def stop(self) -> None:
        """Stop Spark."""
        self._spark.stop()


def totals(pairs: Any) -> Totals:
    """The answer in a DataFrame of pairs, added up by executors."""
    code = "crc32(concat_ws(':', CAST(offset AS STRING), key))"
    found = pairs.selectExpr("count(*) AS pairs", f"coalesce(sum({code}), 0) AS checksum").collect()[0]
    return Totals(int(found["pairs"]), int(found["checksum"]))


def _offset(text: str) -> int:
    return int(json.loads(text)["offset"])
