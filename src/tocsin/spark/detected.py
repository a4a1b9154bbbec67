"""What `ts.detect` gives: one schema for detection in streams, in batches and in back-tests.

    id, type, source STRING, time TIMESTAMP     as the node's: the same detection has the same id everywhere
    key STRING                                  JSON of the fields of BY and their values; NULL without BY
    parts ARRAY<STRUCT<name, offset, id, source, time>>
                                                what it is made of, in order; of a timer's tick only name and time
    classification STRING
    data STRING                                 the payload as the node stores it; parts and key are in it, too

Without `key` and `parts`, which the payload holds, these are columns that the sink takes: it publishes the events that
a node would have derived.

Tasks make the raw columns only. `parts` is made of the payload by Spark itself, so it costs nothing to whom it is
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.clock import as_datetime, as_micros
from tocsin.cloudevents import encode_json
from tocsin.composite.detector import Detector
from tocsin.model import Event

__all__ = ["DETECTED", "PROGRESS", "RAW", "finished", "progress", "to_arrow"]

RAW = "id STRING, type STRING, source STRING, time TIMESTAMP, key STRING, classification STRING, data STRING"
"""What tasks make, as Spark's DDL."""
_PARTS = "ARRAY<STRUCT<name: STRING, offset: BIGINT, id: STRING, source: STRING, time: TIMESTAMP>>"
DETECTED = RAW.replace("key STRING,", f"key STRING, parts {_PARTS},")
"""The columns of `ts.detect`, as Spark's DDL."""

PROGRESS = "tocsin.progress"
"""The type of rows that are no events, but say how far an engine is: for the pipeline."""

_ARROW = pa.schema(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("source", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("key", pa.string()),
        ("classification", pa.string()),
        ("data", pa.string()),
    ]
)
_write = msgspec.json.Encoder().encode


def to_arrow(found: Sequence[Event], emits: Collection[str] | None = None) -> pa.RecordBatch:
    """Derived events as raw columns.

    Args:
        found: what a Detector gave.
        emits: the definitions that were asked for; None: all.
    """
    events = found if emits is None else [event for event in found if event.type in emits]
    times = [as_micros(event.time) for event in events]  # type: ignore[arg-type]  # a derived event has one
    keys = [_write(event.data["key"]).decode() if event.data["key"] else None for event in events]
    return pa.record_batch(
        [
            pa.array([event.id for event in events], pa.string()),
            pa.array([event.type for event in events], pa.string()),
            pa.array([event.source for event in events], pa.string()),
            pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array(keys, pa.string()),
            pa.array([event.classification for event in events], pa.string()),
            pa.array([encode_json(event.data, "data").decode() for event in events], pa.string()),
        ],
        schema=_ARROW,
    )


def progress(detector: Detector, instant: int) -> pa.RecordBatch:
    """A row that says how far an engine is, and when something in it is due."""
    data = {"offset": detector.position, "instant": instant, "due": detector.next_timer}
    return to_arrow([Event(PROGRESS, "tocsin", id="-", time=as_datetime(instant), data=data | {"key": None})])


def finished(raw: DataFrame) -> DataFrame:
    """Raw columns as `ts.detect` gives them."""
    stored = _PARTS.replace("time: TIMESTAMP", "time: STRING")  # a time's text is cast, which knows microseconds
    parts = F.from_json("data", f"STRUCT<parts: {stored}>").getField("parts").cast(_PARTS)
    return raw.select("id", "type", "source", "time", "key", parts.alias("parts"), "classification", "data")
