"""Detection of the pipeline: one streaming query over the journal, which is made anew when definitions change.

    journal ─▶ `packing` ─▶ `stateful` ─▶ what a batch has found ─▶ the node, under the batch's number

The query goes on from its checkpoint whatever has ended it, and so do the engines of all definitions that have stayed.
A batch that was made without a definition it should have known is refused by the node (`node/beside.py`); then, as
after a failure, it is made again from where the last one ended.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tocsin.composite.expression import is_timed
from tocsin.composite.language import parse
from tocsin.errors import JournalError, TocsinError
from tocsin.journal.reader import open_reader
from tocsin.node.beside import Progress
from tocsin.node.channel import Definitions, Detection, Found, Line, Report, Settings
from tocsin.spark import stateful
from tocsin.spark.begins import Begin
from tocsin.spark.detected import PROGRESS
from tocsin.spark.detecting import Plan, plan
from tocsin.spark.packing import pack
from tocsin.spark.pipeline.checkpoint import Checkpoint

__all__ = ["Detecting"]

_TRIGGER = "200 milliseconds"
"""So often the journal is looked at. Less, and Spark does little else than look."""
_MOST = 200_000
"""Events of a batch, while it catches up."""


class _Stale(Exception):
    """A batch was made without a definition that it should have known, or is not wanted any more."""


class _Run(NamedTuple):
    """One life of the query."""

    version: str
    """Of its definitions."""
    writer: str


class Detecting:
    """Looks for what the node says."""

    def __init__(self, spark: SparkSession, line: Line, settings: Settings, source: dict[str, str]) -> None:
        """Prepare it; nothing runs before `use`.

        Args:
            spark: the session.
            line: to the node.
            settings: where everything is.
            source: options of the journal as a source.
        """
        self._spark, self._line, self._source = spark, line, source
        self._journal = settings.journal
        self._checkpoint = Checkpoint(Path(settings.directory))
        self._definitions = Definitions("", ())
        self._query: StreamingQuery | None = None
        self._storing = threading.Lock()
        self._run: _Run | None = None  # the one whose batches may be stored
        self._done: dict[int, Progress] = {}
        self._reported = -1

    def use(self, definitions: Definitions) -> None:
        """Look for these from now on.

        Raises:
            TocsinError: the checkpoint cannot be used.
        """
        self.stop()
        self._definitions = definitions
        if any(each.is_told for each in definitions.wanted):
            self._start()
        elif self._checkpoint.exists:
            self._checkpoint.remove()

    def stop(self) -> None:
        """Look for nothing any more; what was begun is done again when it goes on."""
        query, self._query = self._query, None
        with self._storing:  # not while the node has been asked and the answer is not there
            self._run = None
        if query is not None:
            query.stop()

    def _start(self) -> None:
        wanted = self._definitions.wanted
        with closing(open_reader(self._journal)) as reader:
            journal, oldest = str(getattr(reader, "file_id", "")), reader.first
        if not self._checkpoint.exists:
            buckets = int(self._spark.conf.get("spark.sql.shuffle.partitions") or "1")
            first = max(oldest, 1 + min(each.since for each in wanted))
            self._checkpoint.begin(journal, first, buckets)
        about = self._checkpoint.about(journal)
        self._run = run = _Run(self._definitions.version, about.writer)
        self._done, self._reported = {}, -1
        made = _plan(self._definitions, about.buckets)
        events = self._spark.readStream.format("tocsin").options(**self._source)
        events = events.option("system", "true").option("allowGaps", "true").option("maxEventsPerTrigger", _MOST)
        found = stateful.stream(pack(events.option("startingOffset", about.first).load(), made), made)
        found = found.selectExpr("type", "id", "unix_micros(time) AS instant", "data", "classification")
        writing = found.writeStream.foreachBatch(partial(self._batch, run)).queryName("tocsin-detect")
        writing = writing.option("checkpointLocation", str(self._checkpoint.spark))
        self._query = writing.trigger(processingTime=_TRIGGER).start()
        reached = self._checkpoint.reached()
        self._line.ask(Report(progress=self._from(about.first - 1 if reached is None else reached)))

    def _from(self, offset: int) -> Progress:
        """Where it goes on. If something may wait for time to pass, a clock record is due, so that it is known what."""
        with closing(open_reader(self._journal)) as reader:
            instant = next((block.arrived[1] for block in reader.blocks(offset, offset)), 0)
        wanted = [parse(each.name, each.text, each.context, each.semantics) for each in self._definitions.wanted]
        return Progress(offset, instant, instant if any(is_timed(each.expression) for each in wanted) else None)

    # -- a batch

    def _batch(self, run: _Run, found: DataFrame, number: int) -> None:
        """Give what a batch has found to the node. Spark calls it, in a thread of its own."""
        rows = found.collect()
        progress = _progress(row for row in rows if row.type == PROGRESS)
        events = [
            Detection(row.type, row.id, row.instant, row.data, row.classification)
            for row in rows
            if row.type != PROGRESS
        ]
        if progress is None:
            return  # a batch without a single row
        events.sort(key=lambda each: (each.instant, _last_part(each.data), each.type, each.id))
        place = (run.version, run.writer, number, progress.offset, progress.instant)
        with self._storing:
            if self._run is not run or not self._line.ask(Found(*place, events), bool):
                raise _Stale
        self._done[number] = progress

    # -- how it goes

    def look(self) -> bool:
        """Report what was done; False: it has ended, and must be started with `use`.

        Raises:
            TocsinError: it has failed.
        """
        query = self._query
        if query is None:
            return True
        if not query.isActive:
            self._query = None
            if (error := query.exception()) is not None and "_Stale" not in str(error):
                raise self._explained(str(error))
            return False
        self._report(query)
        return True

    def _report(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is None or last["batchId"] == self._reported or last["batchId"] not in self._done:
            return
        self._reported = last["batchId"]
        progress = self._done.pop(self._reported)
        for number in [each for each in self._done if each < self._reported]:
            del self._done[number]
        operators = last["stateOperators"]
        self._line.ask(
            Report(
                progress=progress,
                batch_seconds=last["durationMs"].get("triggerExecution", 0) / 1000,
                state_rows=sum(each["numRowsTotal"] for each in operators),
                state_bytes=sum(each["memoryUsedBytes"] for each in operators),
            )
        )

    def _explained(self, text: str) -> TocsinError:
        """What Spark says, in a sentence."""
        if "CANNOT_LOAD_STATE_STORE" in text or f"{self._checkpoint.spark}/state" in text:
            return self._checkpoint.damaged("its state cannot be read")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        ours = [line.partition("tocsin.errors.")[2] for line in lines if "tocsin.errors." in line]
        told = ours[-1] if ours else next(iter(lines), "it says nothing")
        return JournalError(f"detection on Spark has failed: {told[:500]}", help="pipeline.log has the rest")


def _plan(definitions: Definitions, buckets: int) -> Plan:
    given = {
        each.name: replace(parse(each.name, each.text, each.context, each.semantics), max_open=each.max_open)
        for each in definitions.wanted
    }
    silent = [each.name for each in definitions.wanted if not each.is_told]
    begins = {each.name: Begin(each.since, each.instant) for each in definitions.wanted}
    return plan(given, buckets=buckets, silent=silent, begins=begins)


def _progress(rows: Iterable[Any]) -> Progress | None:
    """How far all engines are, out of what each says."""
    said = [json.loads(row.data) for row in rows]
    if not said:
        return None
    due = [each["due"] for each in said if each["due"] is not None]
    return Progress(
        max(each["offset"] for each in said), max(each["instant"] for each in said), min(due) if due else None
    )


def _last_part(data: str) -> int:
    return max((part.get("offset", 0) for part in json.loads(data)["parts"]), default=0)
