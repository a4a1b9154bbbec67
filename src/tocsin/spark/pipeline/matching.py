"""Subscriptions with placement `spark`: matched here, delivered by the node like all others.

    node: which? ─▶ a filter set, which the query follows ─▶ `ts.match` ─▶ a stretch, and who matches what in it ─▶ node

On a cluster its shards split and merge by load (`Elastic`). Inside one process that would cost twice the time for
nothing: tasks divide the events among the cores.

A subscription that comes or goes is a change of the filter set; the query goes on, and its next batch knows it. Of each
batch the node learns up to where it reaches and which subscriptions it knew. Everything else is the node's: it keeps
how far each subscription is, takes what is new to it, and looks itself for what no batch has said, such as what came
before a batch knew a subscription. So a batch may be told twice, or not at all, and nothing is lost or doubled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tocsin import tracing
from tocsin.errors import TocsinError
from tocsin.journal.reader import open_reader
from tocsin.node.channel import Line, Matched, Report, Settings, Subscriptions, Wants
from tocsin.node.divided import Divided
from tocsin.spark.elastic import Elastic
from tocsin.spark.match import match
from tocsin.spark.pipeline.checkpoint import Checkpoint
from tocsin.spark.pipeline.failing import Failures, started
from tocsin.spark.pipeline.subscribed import UNKNOWN, Subscribed
from tocsin.spark.settings import parse_master

__all__ = ["Matching"]

ELASTIC = Elastic()
"""When shards split and merge, where they do."""
_TRIGGER = "100 milliseconds"
_MOST = 200_000  # events of a batch, while it catches up
_REPORT = 1.0  # seconds between two looks at the shards
_log = logging.getLogger(__name__)


class Matching:
    """Matches what the node says."""

    TIDY = 10.0
    """Seconds between two calls of `tidy`."""

    def __init__(
        self, spark: SparkSession, line: Line, settings: Settings, source: Callable[[], dict[str, str]]
    ) -> None:
        """Prepare it; nothing runs before `look`. The arguments are those of `Detecting`."""
        self._spark, self._line, self._source = spark, line, source
        self._journal = settings.journal
        directory = Path(settings.directory)
        self._checkpoint = Checkpoint(directory, "match")
        self._shards = None if parse_master(settings.master).inside else ELASTIC
        self._subscribed = Subscribed(directory / "filters", self._checkpoint, self._shards)
        self._shown: Divided | None = None
        self._next_report = 0.0
        self._is_crowded = False
        self._stands = 0  # so far it has matched
        self._known: int | None = None
        self._query: StreamingQuery | None = None
        self._failures = Failures(line, "matching", self._checkpoint)
        self._traces = tracing.begin()

    def look(self) -> None:
        """Ask what is wanted, and see to it that it is matched. To be called again and again.

        Raises:
            TocsinError: it has failed.
        """
        wanted: Subscriptions | None = self._line.ask(Wants(self._known), Subscriptions | None)
        if wanted is not None:
            self._known = wanted.version
            if wanted.filters or self._query is not None or self._checkpoint.exists:
                self._change(wanted)
        if self._query is not None and not self._query.isActive:
            error, self._query = self._query.exception(), None
            if error is not None:
                self._failures.note(str(error))
            self._start()
        elif self._query is not None and self._is_crowded:
            self._begin_anew()
        self._report()

    def tidy(self) -> None:
        """Remove what no batch can need any more. To be called now and then, in any thread."""
        try:
            self._subscribed.prune()
            self._is_crowded = self._subscribed.is_crowded
        except (TocsinError, OSError) as error:  # it costs space, never a match
            _log.warning("old versions of the filters are not removed now: %s", error)

    def _begin_anew(self) -> None:
        """Subscriptions come and go and events do not: nothing is lost with a checkpoint that names old versions."""
        self._is_crowded = False
        with closing(open_reader(self._journal)) as reader:
            is_idle = self._stands >= reader.head
        if is_idle:  # else a batch comes; what comes from now on is the new one's, or found by the node
            self.stop()
            self._checkpoint.remove()
            self.tidy()
            self._start()

    def _report(self) -> None:
        """Tell the node how the filters are divided, if that is news."""
        now = time.monotonic()
        if now < self._next_report:
            return
        self._next_report = now + _REPORT
        shown = self._subscribed.divided()
        if shown is not None and shown != self._shown:
            self._line.ask(Report(matching=shown))
            self._shown = shown

    def _change(self, wanted: Subscriptions) -> None:
        self._subscribed.change(wanted)
        if not wanted.filters:
            self.stop()
            self._checkpoint.remove()
        elif self._query is None:
            self._start()

    def stop(self) -> None:
        """Match nothing any more."""
        query, self._query = self._query, None
        if query is not None:
            query.stop()

    def _start(self) -> None:
        with closing(open_reader(self._journal)) as reader:
            journal, head = reader.file_id, reader.head
        if not self._checkpoint.exists:
            self._checkpoint.begin(journal, head + 1, 1)
        about = self._checkpoint.about(journal)
        events = self._spark.readStream.format("tocsin").options(**self._source())
        filters = self._subscribed.filters
        events = events.option("filters", filters.path).option("startingOffset", about.first)
        events = events.option("system", "true").option("allowGaps", "true").option("maxEventsPerTrigger", _MOST)
        matched = match(events.load(), filters, shards=self._shards)
        writing = matched.writeStream.foreachBatch(partial(self._batch, about.first))
        writing = writing.option("checkpointLocation", str(self._checkpoint.spark)).queryName("tocsin-match")
        self._query = started(writing.trigger(processingTime=_TRIGGER), self._checkpoint, "matching")
        reached = self._checkpoint.reached()
        self._stands = stands = about.first - 1 if reached is None else reached
        self._line.ask(Matched(UNKNOWN, stands + 1, stands, {}))  # what lies before is for the node to find

    def _batch(self, begin: int, pairs: DataFrame, number: int) -> None:
        """Tell the node what a batch has found. Spark calls it, in a thread of its own."""
        with self._traces.batch("match", number) if self._traces is not None else nullcontext():
            self._tell(begin, pairs, number)

    def _tell(self, begin: int, pairs: DataFrame, number: int) -> None:
        found: dict[str, list[int]] = {}
        for offset, key in pairs.collect():
            found.setdefault(key, []).append(offset)
        for offsets in found.values():
            offsets.sort()
        first = begin if number == 0 else self._checkpoint.end_of(number - 1)["offset"] + 1
        end = self._checkpoint.end_of(number)
        if end["offset"] >= first:  # else it is the batch with which Spark begins, if nothing has come yet
            self._line.ask(Matched(self._subscribed.called(end["filters"]), first, end["offset"], found))
            self._stands = end["offset"]
