"""Detection of the pipeline: one streaming query over the journal, which is made anew when definitions change.

    journal ─▶ `packed` ─▶ `stateful` ─▶ what a batch has found ─▶ the node, under the batch's number

The query goes on from its checkpoint whatever has ended it, and so do the engines of all definitions that have stayed.
The node says what is to be looked for from which offset on and up to which, as far back as the checkpoint may be, so
each stretch of the journal is looked at with the definitions that were there (`spark/begins.py`). A batch that was made
without knowing of a change is refused by the node (`node/beside.py`); then, as after a failure, it is made again from
where the last one ended.

When definitions change, the batch that runs is finished, and the next one is not begun.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tocsin import tracing
from tocsin.clock import as_micros
from tocsin.journal.reader import open_reader
from tocsin.node.beside import Progress
from tocsin.node.channel import Definitions, Detection, Found, Line, Look, Outcome, Report, Settings
from tocsin.node.placement import Wanted
from tocsin.spark import stateful
from tocsin.spark.detected import PROGRESS
from tocsin.spark.detecting import scheduled
from tocsin.spark.origin import Origin, open_origin
from tocsin.spark.pipeline.checkpoint import Checkpoint
from tocsin.spark.pipeline.failing import Failures, started
from tocsin.spark.pipeline.packed import PackedSource, plan_option

__all__ = ["Detecting", "reached", "read"]

_TRIGGER = "100 milliseconds"
"""So often the journal is looked at. Less, and Spark does little else than look."""
_MOST = 200_000
"""Events of a batch, while it catches up."""
PIECE = 2_000
"""Detections that the node stores at once: while it does, everybody waits."""
_GATHER = 0.3  # seconds without another change of the definitions before the query is made anew
_REPORT = 0.5  # seconds between two looks at how the query is
_AGAIN = 1.0  # seconds until something is told again that the node could not store


class _Stale(Exception):
    """A batch was made without a definition that it should have known, or is not wanted any more."""


class _Run(NamedTuple):
    """One life of the query."""

    definitions: Definitions
    writer: str


class _Parts(msgspec.Struct):
    """What of a payload says in which order detections come."""

    parts: list[dict[str, Any]]


class _Said(msgspec.Struct):
    """How far an engine is; see `detected.progress`."""

    offset: int
    instant: int
    due: int | None


_parts = msgspec.json.Decoder(_Parts).decode
_said = msgspec.json.Decoder(_Said).decode


class Detecting:
    """Looks for what the node says."""

    def __init__(
        self, spark: SparkSession, line: Line, settings: Settings, source: Callable[[], dict[str, str]]
    ) -> None:
        """Prepare it; nothing runs before `look`.

        Args:
            spark: the session.
            line: to the node.
            settings: where everything is.
            source: gives the options of the journal as a source; asked when a query is made.
        """
        self._spark, self._line, self._source = spark, line, source
        self._journal = settings.journal
        self._checkpoint = Checkpoint(Path(settings.directory))
        self._definitions = Definitions("", ())
        self._traces = tracing.begin()
        self._query: StreamingQuery | None = None
        self._storing = threading.Lock()
        self._run: _Run | None = None  # the one whose batches may be stored
        self._changed: float | None = None  # when other definitions came; None: the query has those there are
        self._done: dict[int, Progress] = {}
        self._looked = 0.0
        self._failures = Failures(line, "detection", self._checkpoint)
        spark.dataSource.register(PackedSource)

    @staticmethod
    def check(definitions: Definitions, settings: Settings) -> None:
        """Refuse a checkpoint that cannot be used, if one is needed.

        Raises:
            JournalError: it is damaged, or another journal's.
        """
        checkpoint = Checkpoint(Path(settings.directory))
        if any(each.is_told for each in definitions.wanted) and checkpoint.exists:
            with closing(open_reader(settings.journal)) as reader:
                checkpoint.about(reader.file_id)

    def stop(self) -> None:
        """Look for nothing any more; what was begun is done again when it goes on."""
        query, self._query = self._query, None
        with self._storing:  # not while the node has been asked and the answer is not there
            self._run = None
        if query is not None:
            query.stop()

    def _restart(self) -> None:
        self.stop()
        self._changed = None
        if any(each.is_told for each in self._definitions.wanted):
            self._start()
        elif self._checkpoint.exists:
            self._checkpoint.remove()

    def _start(self) -> None:
        source, wanted = self._source(), self._definitions.wanted
        with closing(open_reader(self._journal)) as reader:
            journal = reader.file_id
        with closing(open_origin(f"file:{self._journal}", source.get("lake"))) as origin:
            if not self._checkpoint.exists:
                buckets = int(self._spark.conf.get("spark.sql.shuffle.partitions") or "1")
                first = max(origin.first, 1 + min(each.since for each in wanted if each.is_told))
                self._checkpoint.begin(journal, first, buckets)
            about = self._checkpoint.about(journal)
            reached = self._checkpoint.reached()
            offset = about.first - 1 if reached is None else reached
            instant = _instant(origin, offset)
        made = scheduled(wanted, about.buckets)
        # If something may wait for time to pass, a clock record is due, so that it is known what.
        due = instant if any(each.is_timed for each in made.divisions) else None
        self._run = run = _Run(self._definitions, about.writer)
        self._done = {}
        packed = self._spark.readStream.format(PackedSource.name()).options(**source, **plan_option(made))
        packed = packed.option("system", "true").option("allowGaps", "true").option("maxEventsPerTrigger", _MOST)
        found = stateful.streamed(packed.option("startingOffset", about.first).load(), made)
        writing = found.writeStream.foreachBatch(partial(self._batch, run)).queryName("tocsin-detect")
        writing = writing.option("checkpointLocation", str(self._checkpoint.spark))
        self._query = started(writing.trigger(processingTime=_TRIGGER), self._checkpoint, "detection")
        self._line.ask(Report(progress=Progress(offset, instant, due)))

    # -- a batch

    def _batch(self, run: _Run, found: DataFrame, number: int) -> None:
        """Give what a batch has found to the node. Spark calls it, in a thread of its own."""
        if self._changed is not None:  # nothing was done for it yet
            raise _Stale
        with self._traces.batch("detect", number) if self._traces is not None else nullcontext() as traceparent:
            self._give(run, found, number, traceparent)

    def _give(self, run: _Run, found: DataFrame, number: int, traceparent: str | None) -> None:
        rows = [row for value in found.collect() for each in stateful.unpacked(value[0]) for row in each.to_pylist()]
        events, progress = read(rows, run.definitions.wanted)
        if progress is None:
            return  # a batch without a single row
        place = (run.definitions.version, run.writer, number, progress.offset, progress.instant)
        if self._traces is not None:
            self._traces.note(offset=progress.offset, detected=len(events))
        for piece, start in enumerate(range(0, max(1, len(events)), PIECE)):
            end = start + PIECE
            self._tell(run, Found(*place, events[start:end], traceparent, piece, end >= len(events)))
        self._done[number] = progress

    def _tell(self, run: _Run, found: Found) -> None:
        while True:
            with self._storing:
                if self._run is not run:
                    raise _Stale
                outcome: Outcome = self._line.ask(found, Outcome)
            if outcome == "stored":
                return
            if outcome == "stale":
                raise _Stale
            time.sleep(_AGAIN)

    # -- how it goes

    def look(self) -> None:
        """Ask what is wanted, and report what was done. To be called again and again.

        If the query has ended, or definitions have changed, another one goes on.

        Raises:
            TocsinError: it has failed.
        """
        now = time.monotonic()
        known = self._definitions.version or None
        definitions: Definitions | None = self._line.ask(Look(known), Definitions | None)
        if definitions is not None:
            self._definitions, self._changed = definitions, now
        query = self._query
        is_changed = self._changed is not None and now >= self._changed + _GATHER
        if query is not None and not query.isActive:
            self._query = None
            if (error := query.exception()) is not None and "_Stale" not in str(error):
                self._failures.note(str(error))
            is_changed = is_changed or self._changed is None
        elif query is not None and is_changed:
            is_changed = not query.status["isTriggerActive"]  # else the batch that runs is let end
        if is_changed:
            self._restart()
        elif query is not None and self._done and now >= self._looked + _REPORT:
            self._looked = now
            self._report(query)

    def _report(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is None or (progress := reached(self._done, last["batchId"])) is None:
            return
        operators = last["stateOperators"]
        self._line.ask(
            Report(
                progress=progress,
                batch_seconds=last["durationMs"].get("triggerExecution", 0) / 1000,
                state_rows=sum(each["numRowsTotal"] for each in operators),
                state_bytes=sum(each["memoryUsedBytes"] for each in operators),
            )
        )


def reached(done: dict[int, Progress], batch: int) -> Progress | None:
    """How far detection is once a batch is done; None: nothing new is known. What was asked for is forgotten.

    Not every batch says how far it has come: one without a single row does not.
    """
    numbers = [each for each in list(done) if each <= batch]
    found = done[max(numbers)] if numbers else None
    for number in numbers:
        del done[number]
    return found


def _instant(origin: Origin, offset: int) -> int:
    """Journal time at an offset; 0: it is not kept any more."""
    if not origin.first <= offset <= origin.head:
        return 0
    return next((block.arrived[1] for block in origin.blocks(offset, offset)), 0)


def read(rows: Iterable[dict[str, Any]], wanted: Sequence[Wanted]) -> tuple[list[Detection], Progress | None]:
    """What the raw columns of a batch say: what was found, in its order, and how far all engines are; None: nothing.

    In whatever way a batch is made again, of each definition the same come first.
    """
    found, said = list[Detection](), list[str]()
    for row in rows:
        if row["type"] == PROGRESS:
            said.append(row["data"])
        else:
            place = (row["type"], row["id"], as_micros(row["time"]))
            found.append(Detection(*place, row["data"], row["classification"], row["completed"]))
    order = {each.name: number for number, each in enumerate(wanted)}
    found.sort(key=partial(_order, order))
    return found, _progress(said)


def _progress(data: Iterable[str]) -> Progress | None:
    """How far all engines are, out of what each says."""
    said = [_said(each) for each in data]
    if not said:
        return None
    due = [each.due for each in said if each.due is not None]
    return Progress(max(each.offset for each in said), max(each.instant for each in said), min(due) if due else None)


def _order(definitions: dict[str, int], found: Detection) -> tuple[Any, ...]:
    """By time, by the event that completed it (a timer comes after events of its instant), then as definitions go."""
    parts = [part.get("offset", inf) for part in _parts(found.data).parts]
    completed = inf if found.completed is None else found.completed
    return (found.instant, completed, definitions[found.type], parts, found.id)
