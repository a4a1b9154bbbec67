"""Events as rows: the form they have on disk, as MessagePack or as Arrow columns. Offsets and arrival are the block's.

A payload is kept as bytes: JSON text for JSON, UTF-8 for text, itself for binary; the content type tells. Attributes
keep their kinds. Nothing that `Event` holds is lost or changed, except that a JSON payload with NaN or an infinity is
refused (`EventError`): JSON could not carry it to any reader but us.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa

from tocsin.clock import SECOND, as_datetime, as_micros
from tocsin.cloudevents import encode_json
from tocsin.errors import EventError
from tocsin.model import ACK, CANCEL, CLASSIFICATION, Event
from tocsin.payload import content_kind

__all__ = ["FLAGS", "SCHEMA", "Row", "check_size", "expires", "from_arrow", "from_row", "to_arrow", "to_row", "wanted"]

Row = tuple[Any, ...]
"""type, source, id, subject, time, content type, payload, attributes, priority, ttl, flags, correlation id."""

_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), False),
        pa.field("arrived", _TIME, False),
        pa.field("time", _TIME),
        pa.field("id", pa.string(), False),
        pa.field("source", pa.string(), False),
        pa.field("type", pa.string(), False),
        pa.field("subject", pa.string()),
        pa.field("priority", pa.int8(), False),
        pa.field("ttl", pa.float64()),
        pa.field("persistent", pa.bool_(), False),
        pa.field("ack", pa.string(), False),
        pa.field("cancel", pa.string(), False),
        pa.field("correlation_id", pa.string()),
        pa.field("classification", pa.string(), False),
        pa.field("datacontenttype", pa.string()),
        pa.field("attributes", pa.binary()),  # MessagePack of a map; NULL: none
        pa.field("data", pa.binary()),
    ]
)
"""What a reader of Arrow sees."""

_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(dict).decode
_PERSISTENT, _ACK, _CANCEL, _CLASS = 1, 1, 3, 4  # the lowest bit; then two, one and two bits from these places
_EPOCH, _MICROSECOND = as_datetime(0), timedelta(microseconds=1)


def _flags(persistent: bool, ack: str, cancel: str, classification: str) -> int:
    return (
        persistent
        | ACK.index(ack) << _ACK
        | CANCEL.index(cancel) << _CANCEL
        | CLASSIFICATION.index(classification) << _CLASS
    )


FLAGS = {each: _flags(*each) for each in itertools.product((False, True), ACK, CANCEL, CLASSIFICATION)}
"""Every combination of persistent, ack, cancel and classification: looking one up is quicker than making it."""


def expires(event: Event) -> int | None:
    """When an event taken out of a journal expires, in microseconds; None: never. It is dead at that moment."""
    if event.ttl is None or event.arrived is None:
        return None
    return as_micros(event.arrived) + round(event.ttl * SECOND)


def to_row(event: Event, largest: int = 0) -> Row:
    """An event as a row.

    Args:
        event: the event.
        largest: the most bytes its payload may have; 0: any number.

    Raises:
        EventError: its JSON payload holds a number JSON cannot write, or the payload is too large.
    """
    data: Any = event.data
    media_type = event.datacontenttype
    if data is not None:
        if media_type is None or content_kind(media_type) == "json":
            data = encode_json(data, "data")
        elif data.__class__ is str:
            data = data.encode()
    attributes = event.attributes
    if largest:
        check_size(data, attributes, largest)
    time = event.time
    return (
        event.type,
        event.source,
        event.id,
        event.subject,
        (time - _EPOCH) // _MICROSECOND if time is not None else None,  # as_micros, without a call
        media_type,
        data,
        attributes or None,
        event.priority,
        event.ttl,
        FLAGS[event.persistent, event.ack, event.cancel, event.classification],
        event.correlation_id,
    )


def check_size(data: bytes | None, attributes: dict[str, Any] | None, largest: int) -> None:
    """Refuse what is too large.

    Raises:
        EventError: the payload has more than `largest` bytes, or the attributes as many characters.
    """
    if data is not None and len(data) > largest:
        raise EventError(
            f"data has {len(data):,} bytes, {largest:,} are allowed",
            field="data",
            help="store it elsewhere and publish where",
        )
    if attributes and sum(len(each) for each in attributes.values() if isinstance(each, str)) > largest:
        raise EventError(f"attributes hold more than {largest:,} characters", field="attributes", help="use data")


def from_row(row: Sequence[Any], offset: int, arrived: int) -> Event:
    """Undo `to_row`."""
    (type_, source, id_, subject, time, media_type, data, attributes, priority, ttl, flags, correlation_id) = row
    if data is not None:
        kind = "json" if media_type is None else content_kind(media_type)
        if kind == "json":
            data = msgspec.json.decode(data)
        elif kind == "text":
            data = bytes(data).decode()
    return Event(
        type_,
        source,
        id_,
        subject=subject,
        time=as_datetime(time) if time is not None else None,
        data=data,
        datacontenttype=media_type,
        attributes=attributes or {},
        priority=priority,
        ttl=ttl,
        persistent=bool(flags & _PERSISTENT),
        ack=ACK[flags >> _ACK & 3],
        cancel=CANCEL[flags >> _CANCEL & 1],
        correlation_id=correlation_id,
        classification=CLASSIFICATION[flags >> _CLASS & 3],
        offset=offset,
        arrived=as_datetime(arrived),
    )


def to_arrow(rows: Sequence[Sequence[Any]], first: int, arrived: Sequence[int]) -> pa.RecordBatch:
    """Rows with consecutive offsets as Arrow."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 12
    (type_, source, id_, subject, time, media_type, data, attributes, priority, ttl, flags, correlation_id) = columns
    return pa.record_batch(
        [
            pa.array(range(first, first + len(rows)), pa.int64()),
            pa.array(arrived, _TIME),
            pa.array(time, _TIME),
            pa.array(id_, pa.string()),
            pa.array(source, pa.string()),
            pa.array(type_, pa.string()),
            pa.array(subject, pa.string()),
            pa.array(priority, pa.int8()),
            pa.array(ttl, pa.float64()),
            pa.array([bool(flag & _PERSISTENT) for flag in flags], pa.bool_()),
            pa.array([ACK[flag >> _ACK & 3] for flag in flags], pa.string()),
            pa.array([CANCEL[flag >> _CANCEL & 1] for flag in flags], pa.string()),
            pa.array(correlation_id, pa.string()),
            pa.array([CLASSIFICATION[flag >> _CLASS & 3] for flag in flags], pa.string()),
            pa.array(media_type, pa.string()),
            pa.array([_pack(each) if each else None for each in attributes], pa.binary()),
            pa.array(data, pa.binary()),
        ],
        schema=SCHEMA,
    )


def wanted(columns: Collection[str] | None) -> list[str]:
    """What a reader gets who asks for these columns: names of `SCHEMA` in its order, `offset` always; None: all."""
    return [name for name in SCHEMA.names if columns is None or name == "offset" or name in columns]


def from_arrow(batch: pa.RecordBatch) -> list[Event]:
    """The events of a batch with the columns of `SCHEMA`."""
    column = {
        name: batch.column(name).cast(pa.int64()).to_pylist()
        if name in ("arrived", "time")
        else batch.column(name).to_pylist()
        for name in SCHEMA.names
    }
    events = []
    for place in range(batch.num_rows):
        flags = FLAGS[tuple(column[name][place] for name in ("persistent", "ack", "cancel", "classification"))]
        attributes = column["attributes"][place]
        row = (
            column["type"][place],
            column["source"][place],
            column["id"][place],
            column["subject"][place],
            column["time"][place],
            column["datacontenttype"][place],
            column["data"][place],
            _unpack(attributes) if attributes is not None else None,
            column["priority"][place],
            column["ttl"][place],
            flags,
            column["correlation_id"][place],
        )
        events.append(from_row(row, column["offset"][place], column["arrived"][place]))
    return events
