"""`format("tocsin")`: a journal as a DataFrame, batch or streaming, and DataFrames into a journal (`sink.py`).

    load()     schema ─▶ options and journal are looked at: most mistakes are told here
    batch      reader ─ partitions ─▶ the range as of now, divided; read ─▶ Arrow (`scan.py`)
    stream     initialOffset, latestOffset ─▶ {"offset": …}; partitions, read: the same

A stream's offset is the last offset read, with option `filters` the version of the filter set, and with `allowGaps` how
many events were trimmed unread. Spark keeps it in the checkpoint, so a repeated batch is the same batch.

What Spark 4.3 does, and what follows:
    - It asks for every column of the schema, whatever a query selects. Name those you want in `.schema(…)`; others
      cost nothing.
    - A batch DataFrame is planned when it is first used, and again only if a condition is pushed. `load()` again to see
      events that came later.
    - What is pushed for one use of a DataFrame stays in force for all others of it, even in the same query: Spark keeps
      the plan with the relation, not with the scan. `df.where(a).union(df.where(b))` would be wrong. So conditions are
      used only with option `pushdown=true`, by which the user says that this `load()` serves one condition. `filter`,
      `startingOffset` and the like belong to one `load()` anyway.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tocsin.errors import JournalError, SchemaError, TocsinError
from tocsin.spark.options import ReadOptions, read_options, suggestion
from tocsin.spark.pushdown import push
from tocsin.spark.ranges import Beginning, Range, advance, beginning, check_range, ending, position
from tocsin.spark.scan import VERSION, Scan
from tocsin.spark.schema import schema_for

__all__ = ["Share", "StreamReader", "TocsinSource"]

_log = logging.getLogger(__name__)

_AT_LOAD = 5.0
"""Seconds that `load()` waits for a node: somebody sits before it. A query that runs is more patient."""
_FREE = ("attributes", "data")
"""Columns that may have several types; `columns.py` knows which."""


class TocsinSource(DataSource):
    """The format `tocsin`. Options are those of `options.py`."""

    @classmethod
    def name(cls) -> str:
        """Say how the format is called."""
        return "tocsin"

    def schema(self) -> str:
        """The columns, if the user names none. Looks at the journal, so that `load()` tells what is wrong."""
        options = read_options(self.options)
        Scan(options, pa.schema([])).open(patience=_AT_LOAD).close()
        _version(options)
        return schema_for(filters=options.filters is not None)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read what there is."""
        options = read_options(self.options, streaming=False)
        scan = Scan(options, _arrow(schema, options))
        return _PushingReader(scan) if options.pushdown else _BatchReader(scan)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Read what there is and what comes."""
        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Publish the rows of a DataFrame."""
        from tocsin.spark import sink

        return sink.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Publish the rows of a stream, each once."""
        from tocsin.spark import sink

        return sink.stream_writer(self.options, schema, overwrite)


class Share(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[Range], version: int | None) -> None:
        """Name the offsets, and the version of the filter set that goes with them."""
        self.ranges = ranges
        self.version = version


class _BatchReader(DataSourceReader):
    """Reads a range once."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def partitions(self) -> list[InputPartition]:
        options = self._scan.options
        version = _version(options)
        with closing(self._scan.open()) as origin:
            begin = beginning(origin, options)
            _report(begin, options)
            found = self._scan.plan(origin, Range(begin.first, ending(origin, options)))
        # Without any, Spark would make one of its own kind up.
        return [Share(ranges, version) for ranges in found or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return self._scan.read(partition.ranges, partition.version)


class _PushingReader(_BatchReader):
    """The same for a DataFrame that serves one condition. Spark asks every row again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        scan = self._scan
        self._scan = Scan(scan.options, scan.schema, push(filters))
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads batch after batch. It keeps nothing that is not in the offsets, except where AvailableNow ends."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Take the options and the columns that Spark wants."""
        self._upto: int | None = None
        self._ready: Scan | TocsinError
        try:
            self._ready = self._prepared(options, schema)
        except TocsinError as error:
            # Spark would hide an error from here behind one of its own; the first question gets it.
            self._ready = error

    def _prepared(self, options: Mapping[str, str], schema: StructType) -> Scan:
        parsed = read_options(options, streaming=True)
        return Scan(parsed, _arrow(schema, parsed))

    @property
    def _scan(self) -> Scan:
        if isinstance(self._ready, TocsinError):
            raise self._ready
        return self._ready

    def initialOffset(self) -> dict[str, Any]:
        """Where it begins that has read nothing yet."""
        scan = self._scan
        with closing(scan.open()) as origin:
            begin = beginning(origin, scan.options)
        _report(begin, scan.options)
        offset = {"offset": begin.first - 1}
        return offset | ({"skipped": begin.skipped} if scan.options.allow_gaps else {})

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch may have."""
        most = self._scan.options.max_events
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends."""
        options = self._scan.options
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with closing(self._scan.open()) as origin:
            found = advance(origin, start, options, most, self._upto)
        if found == start:
            return start  # as it was: a new version of the filter set alone makes no batch
        if (skipped := found.get("skipped", 0) - start.get("skipped", 0)) > 0:
            _report(Beginning(position(start) + 1 + skipped, skipped), options)
        version = _version(options)
        return found if version is None else found | {VERSION: version}

    def reportLatestOffset(self) -> dict[str, Any]:
        """How far the journal is, for figures."""
        with closing(self._scan.open()) as origin:
            return {"offset": origin.head}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to here, and no further."""
        with closing(self._scan.open()) as origin:
            self._upto = origin.head

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Divide a batch among tasks."""
        wanted = Range(position(start) + 1, position(end))
        if wanted.last < wanted.first:
            return []
        version = end.get(VERSION)
        if version is None and self._scan.options.filters is not None:
            raise JournalError(
                "the query's checkpoint has a batch that was begun without the option filters",
                help="let the query finish it without the option, or use a new checkpoint",
            )
        with closing(self._scan.open()) as origin:
            wanted = check_range(origin, wanted, self._scan.options)
            return [Share(ranges, version) for ranges in self._scan.plan(origin, wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the share of a task."""
        assert isinstance(partition, Share)
        return self._scan.read(partition.ranges, partition.version)


def _arrow(schema: StructType, options: ReadOptions) -> pa.Schema:
    """The columns that Spark wants, in Arrow.

    Raises:
        SchemaError: one is not ours, or of another type, or named twice.
    """
    ours = dict(re.findall(r"(\w+) (\w+(?:<[^>]*>)?)", schema_for(filters=options.filters is not None)))
    if not schema.fields:
        raise SchemaError("the schema has no columns", help=f"name some of {', '.join(ours)}")
    for name, count in Counter(schema.fieldNames()).items():
        if count > 1:
            raise SchemaError(f"the schema names the column {name} twice", field=name, help="name it once")
        if name not in ours:
            raise SchemaError(f"there is no column {name}", field=name, help=_mend_column(name, list(ours)))
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in _FREE and kind != ours[field.name].lower():
            message = f"the column {field.name} cannot be {kind.upper()}"
            raise SchemaError(message, field=field.name, help=f"it is {ours[field.name]}; cast it in the query")
    return to_arrow_schema(schema, timezone="UTC")


def _mend_column(name: str, ours: list[str]) -> str:
    if name == VERSION:
        return "it comes with the option filters"
    near = suggestion(name, ours)
    return f"did you mean {near}?" if near else f"there are {', '.join(ours)}; what is in a payload is below data"


def _version(options: ReadOptions) -> int | None:
    """The newest version of the filter set; None: there is none."""
    if options.filters is None:
        return None
    from tocsin.spark.filterset import FilterSet

    return FilterSet(options.filters).version


def _report(begin: Beginning, options: ReadOptions) -> None:
    """Say what was passed over. With a stream it is in the offset too."""
    url, first = options.url, begin.first
    if begin.skipped:
        gone = f"offsets {first - begin.skipped} to {first - 1} are no longer kept"
        _log.warning("%s: %s: %d events skipped", url, gone, begin.skipped)
    if begin.unsure:
        _log.warning("%s: events after startingTime may be missing; offset %d is the first that is kept", url, first)
