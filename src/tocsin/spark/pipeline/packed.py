"""The journal as detection reads it: packed rows, made where the journal is read.

`packing` as a step of its own would cost a second trip of every event between the JVM and Python, and all columns on
the way. Here the task that reads a stretch of the journal packs it, and Spark only sees the few rows that it must move.
What is read, and which offsets a batch has, is the source's own (`spark/source.py`).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tocsin.spark.columns import SOURCE_ARROW
from tocsin.spark.detecting import Plan
from tocsin.spark.options import read_options
from tocsin.spark.packing import PACKED, Packing, columns_of
from tocsin.spark.scan import Scan
from tocsin.spark.source import StreamReader

__all__ = ["PackedSource", "plan_option"]

PLAN = "plan"


def plan_option(plan: Plan) -> dict[str, str]:
    """The option that says what is looked for."""
    return {PLAN: b64encode(msgspec.msgpack.encode(plan)).decode()}


@lru_cache(maxsize=4)
def _packing(text: str) -> Packing:
    """What tasks of this process do; they come again with every batch."""
    return Packing(msgspec.msgpack.decode(b64decode(text), type=Plan))


class PackedSource(DataSource):
    """The format `tocsin-packed`: options of `tocsin`, and `plan`."""

    @classmethod
    def name(cls) -> str:
        """Say how the format is called."""
        return "tocsin-packed"

    def schema(self) -> str:
        """The columns."""
        return PACKED

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Read what there is and what comes."""
        return _PackedReader(self.options, schema)


class _PackedReader(StreamReader):
    """Reads batch after batch, as packed rows."""

    def _prepared(self, options: Mapping[str, str], schema: StructType) -> Scan:
        self._plan = options[PLAN]
        given = {name: value for name, value in options.items() if name.lower() != PLAN}
        names = columns_of(SOURCE_ARROW.names, ("attributes",), _packing(self._plan).plan)
        return Scan(read_options(given, streaming=True), pa.schema([SOURCE_ARROW.field(name) for name in names]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        events: Any = super().read(partition)
        return _packing(self._plan).rows(events)
