"""STRUCT, MAP, ARRAY and VARIANT columns as JSON values, as Spark's `to_json` would write them.

    STRUCT                      an object without its NULL fields
    MAP                         an object; its keys are text
    ARRAY                       an array
    VARIANT                     its value
    BOOLEAN, numbers, STRING    themselves; a DECIMAL is a number
    TIMESTAMP                   RFC 3339 text in UTC; a TIMESTAMP_NTZ the same without a zone, a DATE without a time
    BINARY                      Base64 text

Promised: the same as `to_json` in every session's time zone but for the form of times: these do not depend on it.
Not promised: decimals beyond 15 digits keep all of them only if they are whole.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tocsin.clock import as_datetime
from tocsin.errors import SchemaError
from tocsin.journal.variants import decode, is_variant
from tocsin.model import time_text

__all__ = ["check_type", "json_values", "moments"]

_PLAIN: tuple[Callable[[pa.DataType], bool], ...] = (
    *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary),
    *(pa.types.is_timestamp, pa.types.is_date),
)


def check_type(kind: pa.DataType, place: str) -> None:
    """Refuse a type that has no form in JSON.

    Raises:
        SchemaError: naming `place`, or what lies below it.
    """
    if is_variant(kind) or any(is_kind(kind) for is_kind in _PLAIN):
        return
    if pa.types.is_struct(kind):
        for field in kind:
            check_type(field.type, f"{place}.{field.name}")
    elif pa.types.is_map(kind):
        if not _is_text(kind.key_type):
            raise SchemaError(
                f"the keys of {place} are {kind.key_type}", field=place, help="JSON has text for keys: CAST them"
            )
        check_type(kind.item_type, place)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        check_type(kind.value_type, place)
    else:
        raise SchemaError(f"{place} is {kind}, which JSON does not have", field=place, help="CAST it to STRING")


def json_values(column: pa.Array) -> list[Any]:
    """A column of a type that passed `check_type`, row by row.

    Raises:
        EventError: a VARIANT that cannot be read.
        ValueError, OverflowError: a time that Python cannot hold.
    """
    kind = column.type
    if is_variant(kind):
        pairs = zip(column.field("value").to_pylist(), column.field("metadata").to_pylist(), strict=True)
        there = column.is_valid().to_pylist()
        return [decode(*pair) if is_there else None for pair, is_there in zip(pairs, there, strict=True)]
    if pa.types.is_struct(kind):
        return _objects(column)
    if pa.types.is_map(kind):
        names, items = column.keys.to_pylist(), json_values(column.items)
        return _spread(column, lambda first, last: dict(zip(names[first:last], items[first:last], strict=True)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        members = json_values(column.values)
        return _spread(column, lambda first, last: members[first:last])
    change = _change(kind)
    found: list[Any] = moments(column) if pa.types.is_timestamp(kind) else column.to_pylist()
    return found if change is None else [None if each is None else change(each) for each in found]


def moments(column: pa.Array) -> list[Any]:
    """Timestamps as datetimes in UTC; those without a zone are taken as if they were."""
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if each is None else as_datetime(each) for each in micros]


def _objects(column: pa.Array) -> list[Any]:
    names = [field.name for field in column.type]
    members = [json_values(member) for member in column.flatten()]
    rows = zip(*members, strict=True) if members else ((),) * len(column)
    found: list[Any] = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows
    ]
    if column.null_count:
        return [each if is_there else None for each, is_there in zip(found, column.is_valid().to_pylist(), strict=True)]
    return found


def _spread(column: pa.Array, take: Callable[[int, int], Any]) -> list[Any]:
    """Rows of a MAP or ARRAY, each taken from a stretch of all entries."""
    stretches = zip(pairwise(column.offsets.to_pylist()), column.is_valid().to_pylist(), strict=True)
    return [take(first, last) if is_there else None for (first, last), is_there in stretches]


def _change(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes JSON of a value that Arrow hands over; None: it is JSON."""
    if pa.types.is_timestamp(kind):
        return time_text if kind.tz is not None else lambda moment: time_text(moment).removesuffix("Z")
    if pa.types.is_date(kind):
        return lambda day: day.isoformat()
    if pa.types.is_decimal(kind):
        return _number
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda raw: base64.b64encode(raw).decode()
    return None


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
