"""What `ts.detect` gives: one schema for detection in streams, in batches and in back-tests.

    id, type, source STRING, time TIMESTAMP     as the node's: the same detection has the same id everywhere
    key STRING                                  JSON of the fields of BY and their values; NULL without BY
    parts ARRAY<STRUCT<name, offset, id, source, time>>
                                                what it is made of, in order; of a timer's tick only name and time
    classification STRING
    data STRING                                 the payload as the node stores it; parts and key are in it, too

Without `key` and `parts`, which the payload holds, these are columns that the sink takes, but for the source: that is
the node's own, and nobody else publishes under it. Who stores detections gives them another.

Tasks make the raw columns only. `parts` is made of the payload by Spark itself, so it costs nothing to whom it is
nothing.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.composite.deriving import Derived
from tocsin.composite.detector import SOURCE, Detector
from tocsin.composite.occurrence import TIMER
from tocsin.model import CLASSIFICATION

__all__ = ["DETECTED", "PART", "PROGRESS", "RAW", "finished", "progress", "to_arrow"]

_TOLD = "id STRING, type STRING, source STRING, time TIMESTAMP, key STRING, classification STRING, data STRING"
RAW = f"{_TOLD}, completed BIGINT"
"""What tasks make, as Spark's DDL. The last is the offset of the event that completed it; NULL: a timer did."""
PART = "STRUCT<name: STRING, offset: BIGINT, id: STRING, source: STRING, time: TIMESTAMP>"
"""What is told of a part."""
_PARTS = f"ARRAY<{PART}>"
DETECTED = _TOLD.replace("key STRING,", f"key STRING, parts {_PARTS},")
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
        ("completed", pa.int64()),
    ]
)
_write = msgspec.json.Encoder().encode
_LEVELS = pa.array(CLASSIFICATION, pa.string())


def to_arrow(found: Derived, source: str = SOURCE) -> pa.RecordBatch:
    """Derived events as raw columns."""
    return pa.record_batch(
        [
            pa.array(found.ids, pa.string()),
            pa.array(found.types, pa.string()),
            pa.repeat(source, len(found)),
            pa.array(found.times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array(found.keys, pa.string()),
            _LEVELS.take(pa.array(found.levels, pa.int8())),
            pa.array(found.data, pa.string()),
            pa.array(found.ends, pa.int64(), mask=np.array(found.ends, np.int64) == TIMER),
        ],
        schema=_ARROW,
    )


def progress(detector: Detector, instant: int) -> pa.RecordBatch:
    """A row that says how far an engine is, when something in it is due, and how much it has left out so far.

    Args:
        detector: of the engine.
        instant: journal time of the last row that it has got.
    """
    said = Derived()
    said.ids, said.types, said.times, said.keys, said.levels = ["-"], [PROGRESS], [instant], [None], [0]
    said.ends = [detector.position]
    keyless, repeated = detector.left_out
    told = {"offset": detector.position, "instant": max(instant, detector.over), "due": detector.next_timer}
    said.data = [_write(told | {"keyless": keyless, "repeated": repeated})]
    return to_arrow(said, "tocsin")


def finished(raw: DataFrame) -> DataFrame:
    """Raw columns as `ts.detect` gives them."""
    stored = _PARTS.replace("time: TIMESTAMP", "time: STRING")  # a time's text is cast, which knows microseconds
    parts = F.from_json("data", f"STRUCT<parts: {stored}>").getField("parts").cast(_PARTS)
    return raw.select("id", "type", "source", "time", "key", parts.alias("parts"), "classification", "data")
