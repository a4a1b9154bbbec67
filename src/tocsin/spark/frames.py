"""Rows of a DataFrame → events, for the sink.

    type, source                    STRING, required
    id                              STRING; where it is missing or NULL one is derived
    time                            TIMESTAMP; where it is missing or NULL it is now
    subject, correlation_id, datacontenttype, ack, cancel, classification
                                    STRING
    priority                        a whole number
    ttl                             a number, seconds
    persistent                      BOOLEAN
    attributes                      MAP<STRING, VARIANT | STRING | BOOLEAN | a number | TIMESTAMP>; NULL is no entry
    data                            STRING: JSON text, as the source gives it (for text a JSON string, for binary a data
                                    URL); BINARY: bytes; any other type: the JSON value that `nested.py` tells
    offset, arrived                 passed over: the journal gives new ones

NULL is as in `Event(…)`: its default. Columns of other names are refused, or become attributes.

Promised: every event is made by `Event`, so it is valid. What is wrong with a column raises `SchemaError` when the plan
is made, before there are rows; what is wrong with a row raises `EventError` when its turn comes, and the events before
it have been given out.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type

from tocsin.errors import EventError, SchemaError
from tocsin.journal.statistics import SYSTEM
from tocsin.journal.variants import is_variant
from tocsin.model import Event
from tocsin.payload import content_kind, show
from tocsin.spark.nested import check_type, json_values, moments
from tocsin.spark.options import suggestion

__all__ = ["Frames"]

_Values = Callable[[pa.RecordBatch], list[Any]]
"""A batch → what one field of its events is, row by row."""

_REQUIRED = ("type", "source")
_IGNORED = ("offset", "arrived")
_URL = "data:;base64,"
_read_json = msgspec.json.Decoder().decode


class _Kind(NamedTuple):
    """What a column must be."""

    fits: Callable[[pa.DataType], bool]
    called: str


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _is_scalar(kind: pa.DataType) -> bool:
    """What an attribute can be made of."""
    tests = (_is_text, _is_number, _is_moment, pa.types.is_boolean, pa.types.is_date, is_variant, pa.types.is_null)
    return any(test(kind) for test in tests)


def _is_attributes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind) and _is_text(kind.key_type) and _is_scalar(kind.item_type))


_TEXT = _Kind(_is_text, "STRING")
_KINDS = {
    **dict.fromkeys(
        ("type", "source", "id", "subject", "correlation_id", "datacontenttype", "ack", "cancel", "classification"),
        _TEXT,
    ),
    "time": _Kind(_is_moment, "TIMESTAMP"),
    "priority": _Kind(pa.types.is_integer, "INT"),
    "ttl": _Kind(_is_number, "DOUBLE"),
    "persistent": _Kind(pa.types.is_boolean, "BOOLEAN"),
    "attributes": _Kind(_is_attributes, "MAP<STRING, VARIANT>"),
}
_FIELDS = [name for name in Event.__struct_fields__ if name in _KINDS or name == "data"]
"""In the order of `Event(…)`; no field that a DataFrame cannot give lies between them."""
_PLAIN = Event("-", "-", "-")
_UNREADABLE = (EventError, ValueError, OverflowError, ArithmeticError)
"""What a value that no event can hold raises on its way to Python."""


class Frames:
    """How the rows of one DataFrame become events: made once per task, from its Arrow schema."""

    def __init__(self, schema: pa.Schema, *, extra: bool = False) -> None:
        """Look at the columns.

        Args:
            schema: as Spark hands it over.
            extra: columns of other names become attributes.

        Raises:
            SchemaError: a column is missing, is not ours or has a type that does not fit; `.field` names it.
        """
        for name in _REQUIRED:
            if name not in schema.names:
                raise _missing(name, schema.names)
        self._makers: dict[str, _Values] = {}
        others: list[str] = []
        for field in schema:
            if field.name in self._makers or schema.names.count(field.name) > 1:
                raise SchemaError(f"there are two columns {field.name}", field=field.name, help="drop one of them")
            if field.name == "data":
                self._makers["data"] = _payloads(field.type, "datacontenttype" in schema.names)
            elif field.name in _KINDS:
                self._makers[field.name] = _maker(field)
            elif field.name not in _IGNORED:
                _check_extra(field, extra)
                others.append(field.name)
        if others:
            self._makers["attributes"] = _with_extras(self._makers.get("attributes"), others)

    def events(self, batch: pa.RecordBatch, ids: Callable[[int], str], now: datetime) -> Iterator[Event]:
        """The events of a batch, in order.

        Args:
            batch: with the schema this was made for.
            ids: makes the id of a row that has none, from its place in the batch.
            now: the time of rows that have none.

        Raises:
            EventError: when the turn comes to a row that is no event; `.field` names the column.
        """
        columns: list[Iterable[Any]] = []
        for name in _FIELDS:
            make = self._makers.get(name)
            if make is None:
                columns.append(map(ids, range(batch.num_rows)) if name == "id" else repeat(_default(name, now)))
                continue
            try:
                values = make(batch)
            except _UNREADABLE as error:
                yield from self._up_to_the_bad_row(make, batch, ids, now)
                raise _wrong(name, error) from None
            columns.append(_filled(name, values, ids, now))
        for row in zip(*columns, strict=False):
            event = Event(*row)
            if event.type.startswith(SYSTEM):
                message = f"type is {show(event.type)}, which is the node's own"
                raise EventError(message, field="type", help=f"choose one that does not begin with {SYSTEM}")
            yield event

    def _up_to_the_bad_row(
        self, make: _Values, batch: pa.RecordBatch, ids: Callable[[int], str], now: datetime
    ) -> Iterator[Event]:
        """What lies before the first row that one column cannot make; slow, and only for the message's sake."""
        for row in range(batch.num_rows):
            try:
                make(batch.slice(row, 1))
            except _UNREADABLE:
                yield from self.events(batch.slice(0, row), ids, now)
                return


def _default(name: str, now: datetime) -> Any:
    """What stands for NULL; None where an event may have none, or where it must be refused."""
    return now if name == "time" else None if name in _REQUIRED else getattr(_PLAIN, name)


def _filled(name: str, values: list[Any], ids: Callable[[int], str], now: datetime) -> Iterable[Any]:
    if name == "id":
        return (ids(row) if each is None else each for row, each in enumerate(values))
    default = _default(name, now)
    return values if default is None else (default if each is None else each for each in values)


# -- columns


def _maker(field: pa.Field) -> _Values:
    name, kind = field.name, _KINDS[field.name]
    if not kind.fits(field.type) and not pa.types.is_null(field.type):
        raise SchemaError(
            f"the column {name} is {_called(field.type)}",
            field=name,
            help=f"CAST it AS {kind.called}{'' if name in _REQUIRED else ', or leave it out'}",
        )
    if name == "time":
        return lambda batch: moments(batch.column(name))
    if name == "attributes":
        return lambda batch: [each and _without_nulls(each) for each in json_values(batch.column(name))]
    return lambda batch: json_values(batch.column(name))


def _called(kind: pa.DataType) -> str:
    """A type as Spark's users know it; as Arrow has it where Spark has none."""
    try:
        return from_arrow_type(kind).simpleString()
    except PySparkException:
        return str(kind)


def _without_nulls(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _check_extra(field: pa.Field, extra: bool) -> None:
    """Refuse a column that is none of ours, unless it can be an attribute."""
    name = field.name
    if not extra:
        near = suggestion(name, [*_FIELDS, *_IGNORED])
        mend = f"did you mean {near}?" if near else "put it into data or attributes, or drop it."
        raise SchemaError(
            f"there is no column {name} in an event",
            field=name,
            help=f"{mend} With option extraColumns=attributes it becomes an attribute",
        )
    if not _is_scalar(field.type):
        raise SchemaError(
            f"{name} is {_called(field.type)}, too much for an attribute", field=name, help="put it into data"
        )
    try:
        Event("-", "-", attributes={name: True})
    except EventError as error:
        raise SchemaError(f"{name} cannot be an attribute: {error.message}", field=name, help=error.help) from None


def _with_extras(make: _Values | None, names: list[str]) -> _Values:
    """Attributes that columns of their own add to; such a column counts for more than the map."""

    def together(batch: pa.RecordBatch) -> list[Any]:
        given = make(batch) if make is not None else [None] * batch.num_rows
        rows = zip(*(json_values(batch.column(name)) for name in names), strict=True)
        return [
            (attributes or {}) | _without_nulls(dict(zip(names, row, strict=True)))
            for attributes, row in zip(given, rows, strict=True)
        ]

    return together


# -- payloads


def _payloads(kind: pa.DataType, typed: bool) -> _Values:
    """How `data` is read; `typed`: there is a column with content types."""
    if _is_text(kind):
        if not typed:
            return lambda batch: [None if each is None else _json(each) for each in batch.column("data").to_pylist()]
        return lambda batch: [
            None if text is None else _payload(text, media_type)
            for text, media_type in zip(
                batch.column("data").to_pylist(), batch.column("datacontenttype").to_pylist(), strict=True
            )
        ]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda batch: list(batch.column("data").to_pylist())
    check_type(kind, "data")
    return lambda batch: json_values(batch.column("data"))


def _payload(text: str, media_type: str | None) -> Any:
    kind = "json" if media_type is None else content_kind(media_type)
    if kind == "binary":
        if not text.startswith(_URL):
            raise _not_json(text, f"of {media_type} as a data URL", f"write {_URL}…, or give a BINARY column")
        return base64.b64decode(text[len(_URL) :], validate=True)
    value = _json(text)
    if kind == "text" and not isinstance(value, str):
        raise _not_json(text, f"of {media_type} as a JSON string", "write it with to_json, quotes and all")
    return value


def _json(text: str) -> Any:
    try:
        return _read_json(text)
    except (ValueError, RecursionError):
        mend = "make it with to_json, or give data as a STRUCT, MAP, ARRAY or VARIANT column"
        raise _not_json(text, "as JSON text", mend) from None


def _not_json(text: str, what: str, mend: str) -> EventError:
    return EventError(f"data is {show(text)}, not a payload {what}", field="data", help=mend)


# -- errors


def _missing(name: str, names: list[str]) -> SchemaError:
    near = next((each for each in names if each.lower() == name), None)
    mend = f"rename {near}" if near else f"add it, for instance with lit('…').alias('{name}')"
    return SchemaError(f"there is no column {name}; every event has one", field=name, help=mend)


def _wrong(name: str, error: Exception) -> EventError:
    if isinstance(error, EventError):
        return error if error.field else EventError(f"{name}: {error.message}", field=name, help=error.help)
    return EventError(f"{name} holds a value that no event can: {error}", field=name, help="leave such rows out")
