"""What `ts.detect` gives: one schema for detection in streams, in batches and in back-tests.

    id, type, source STRING, time TIMESTAMP     as the node's: the same detection has the same id everywhere
    key STRING                                  JSON of the fields of BY and their values; NULL without BY
    parts ARRAY<STRUCT<name, offset, id, source, time>>
                                                what it is made of, in order; of a timer's tick only name and time
    classification STRING
    data STRING                                 the payload as the node stores it; parts and key are in it, too

Without `key` and `parts`, which the payload holds, these are columns that the sink takes, but for the source: that is
the node's own, and nobody else publishes under it. Who stores detections gives them another.

Tasks make all columns, of what engines know: Spark would take several times as long to read `parts` out of the payload,
and in `foreachBatch` it would do so whether they are wanted or not. For the pipeline, which takes the payload, `parts`
are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tocsin.composite.deriving import Derived, Paired, called, event_names
from tocsin.composite.detector import SOURCE, Detector
from tocsin.composite.occurrence import TIMER, Part
from tocsin.model import CLASSIFICATION
from tocsin.spark.pairing import derived_columns, written_key

__all__ = ["DETECTED", "PART", "PROGRESS", "batches", "nothing", "progress"]

PART = "STRUCT<name: STRING, offset: BIGINT, id: STRING, source: STRING, time: TIMESTAMP>"
"""What is told of a part."""
DETECTED = f"id STRING, type STRING, source STRING, time TIMESTAMP, key STRING, parts ARRAY<{PART}>"
DETECTED += ", classification STRING, data STRING"
"""The columns of `ts.detect`, as Spark's DDL."""

PROGRESS = "tocsin.progress"
"""The type of rows that are no events, but say how far an engine is: for the pipeline."""

_TIME = pa.timestamp("us", "UTC")
_PART = pa.struct(
    [("name", pa.string()), ("offset", pa.int64()), ("id", pa.string()), ("source", pa.string()), ("time", _TIME)]
)
_ARROW = pa.schema(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("source", pa.string()),
        ("time", _TIME),
        ("key", pa.string()),
        ("parts", pa.list_(_PART)),
        ("classification", pa.string()),
        ("data", pa.string()),
    ]
)
_EXACT = _ARROW.remove(_ARROW.get_field_index("parts")).append(pa.field("completed", pa.int64()))
"""For the pipeline: the offset of the event that completed it, NULL where a timer did, in place of `parts`."""
_FEW = 64
"""Pairs for which it is not worth while to make columns of them at once."""
_write = msgspec.json.Encoder().encode
_LEVELS = pa.array(CLASSIFICATION, pa.string())

Array = np.ndarray[Any, Any]


def batches(found: Derived, *, is_exact: bool = False) -> Iterator[pa.RecordBatch]:
    """Derived events in columns, in no particular order; `is_exact`: for the pipeline."""
    if sum(len(each.closers) for paired in found.pairs for each in paired.found) < _FEW:
        found.settle()
    if found.ids:
        yield _batch(found, SOURCE, is_exact)
    for paired in found.pairs:
        if any(each.closers for each in paired.found):
            yield from _pairs(paired, is_exact)


def nothing() -> pa.RecordBatch:
    """A batch without rows."""
    return _batch(Derived(), SOURCE, False)


def _batch(found: Derived, source: str, is_exact: bool) -> pa.RecordBatch:
    columns = {
        "id": pa.array(found.ids, pa.string()),
        "type": pa.array(found.types, pa.string()),
        "source": pa.repeat(source, len(found.ids)),
        "time": pa.array(found.times, pa.int64()).cast(_TIME),
        "key": pa.array(found.keys, pa.string()),
        "classification": _LEVELS.take(pa.array(found.levels, pa.int8())),
        "data": pa.array(found.data, pa.string()),
    }
    if is_exact:
        columns["completed"] = pa.array(found.ends, pa.int64(), mask=np.array(found.ends, np.int64) == TIMER)
    else:
        columns["parts"] = _parts(found.parts)
    return _of(columns, is_exact)


def _of(columns: dict[str, pa.Array], is_exact: bool) -> pa.RecordBatch:
    schema = _EXACT if is_exact else _ARROW
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def _parts(found: Sequence[Sequence[Part]]) -> pa.Array:
    """What derived events are made of."""
    flat = [part for parts in found for part in parts]
    is_tick = np.array([part.offset is None for part in flat], np.bool_)
    columns = [
        pa.array([called(part, place) for parts in found for place, part in enumerate(parts, 1)], pa.string()),
        pa.array([part.offset for part in flat], pa.int64()),
        pa.array([part.id for part in flat], pa.string(), mask=is_tick),
        pa.array([part.source for part in flat], pa.string(), mask=is_tick),
        pa.array([part.time for part in flat], pa.int64(), mask=~is_tick).cast(_TIME),
    ]
    return _lists(np.cumsum([0, *map(len, found)]), columns)


def _lists(borders: Array, columns: Sequence[pa.Array]) -> pa.Array:
    parts = pa.StructArray.from_arrays(columns, fields=list(_PART))
    return pa.ListArray.from_arrays(pa.array(borders, pa.int32()), parts, type=pa.list_(_PART))


# -- pairs


def _pairs(paired: Paired, is_exact: bool) -> Iterator[pa.RecordBatch]:
    """A batch for each definition that has detected something."""
    rows, before = paired.rows, paired.before
    offsets = pa.array(rows.offsets + [part.offset for part in before], pa.int64())
    ids = pa.array(rows.ids + [part.id for part in before], pa.string())
    sources = pa.array(rows.sources + [part.source for part in before], pa.string())
    levels = np.array((rows.levels or [0] * len(rows.offsets)) + [part.level for part in before], np.int8)
    times = np.array(paired.times, np.int64)
    where = np.concatenate([paired.order, len(rows.offsets) + np.arange(len(before))])
    packed, written = zip(*[written_key(paired.by, key) for key in paired.keys], strict=True)
    packs, texts = pa.array(packed, pa.binary()), pa.array(written, pa.string())
    for each in paired.found:
        if not each.closers:
            continue
        count, keys = len(each.closers), pa.array(each.keys, pa.int32())
        first, last = where[each.openers], where[each.closers]
        opener, closer = [[column.take(pa.array(at)) for column in (offsets, ids, sources)] for at in (first, last)]
        names = event_names(each.names)
        key = texts.take(keys)
        made, data = derived_columns(each.deriver.hash, names, opener, closer, packs.take(keys), key)
        columns = {
            "id": made,
            "type": pa.repeat(each.deriver.name, count),
            "source": pa.repeat(SOURCE, count),
            "time": pa.array(times[each.closers]).cast(_TIME),
            "key": key,
            "classification": _LEVELS.take(pa.array(np.maximum(levels[first], levels[last]))),
            "data": data,
        }
        if is_exact:
            columns["completed"] = closer[0]
        else:
            both = pa.array(np.stack([first, last], axis=1).ravel())
            named = pa.array(names, pa.string()).take(pa.array(np.tile([0, 1], count)))
            told = [column.take(both) for column in (offsets, ids, sources)]
            borders = np.arange(0, 2 * count + 1, 2)
            columns["parts"] = _lists(borders, [named, *told, pa.nulls(2 * count, _TIME)])
        yield _of(columns, is_exact)


# -- the pipeline


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
    return _batch(said, "tocsin", is_exact=True)
