"""Arrow columns → dense rows, column by column.

Text columns are dictionary-encoded by Arrow, so each distinct text is looked up once per batch; numbers become ordered keys
in one NumPy expression. `encode` answers False, having promised nothing, when a batch or the filters need more than that
(computed terms, arrays, maps, JSON text that filters reach into): the caller then goes through `Events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, overload

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.filters import normal, values
from tocsin.filters.index.layout import Array
from tocsin.filters.index.labels import ABSENT
from tocsin.filters.index.space import MEMBER
from tocsin.filters.index.vectors import number_keys
from tocsin.filters.index.view import View
from tocsin.filters.syntax import Field
from tocsin.model import ENVELOPE, Event

__all__ = ["Events", "encode", "pieces"]

_TIMES = ("time", "arrived")


def pieces(data: pa.Table | pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Cut Arrow data into record batches of at most `size` rows."""
    for batch in data.to_batches() if isinstance(data, pa.Table) else [data]:
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)


class Events(Sequence[Event]):
    """The rows of a record batch as events, made when asked for."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return Events(self._batch.slice(start, stop - start))
        return _event(self._batch.slice(index, 1).to_pylist()[0])


def _event(row: dict[str, Any]) -> Event:
    """One event from one row; columns that are not the event's own become attributes, as in `encode`."""
    fields = {name: row[name] for name in ENVELOPE if row.get(name) is not None}
    for name in ("type", "source", "id"):
        fields.setdefault(name, "-")
    attributes = dict(row.get("attributes") or {})  # a struct is a dict, a map a list of pairs
    data = row.get("data")
    if isinstance(data, str) and row.get("datacontenttype") in (None, "application/json"):
        try:
            data = msgspec.json.decode(data)
        except msgspec.DecodeError:
            fields["datacontenttype"] = "text/plain"
    nested: dict[str, Any] = {}
    for name, value in row.items():
        if name not in ENVELOPE and name not in ("attributes", "data") and value is not None:
            if isinstance(value, bool | int | float | str | datetime):
                attributes[name] = value
            else:
                nested[name] = value
    if nested and (data is None or isinstance(data, dict)):
        data = {**(data or {}), **nested}
    return Event(attributes={name: value for name, value in attributes.items() if value is not None}, data=data, **fields)


def encode(view: View, batch: pa.RecordBatch, codes: Array, keys: Array) -> bool:
    """Fill dense rows from plain columns; False if that is not possible and nothing can be relied on."""
    space = view.space
    if any(not isinstance(value, Field) for value in space.terms.values()):
        return False
    columns: dict[str, pa.Array | None] = {}
    for term, value in space.terms.items():
        assert isinstance(value, Field)
        found = _column(batch, value.path)
        if found is False:
            return False
        columns[term] = found
    for coded in space.coded:
        column = columns[coded.term]
        if coded.test == MEMBER:
            if column is not None:
                return False
        elif coded.test == normal.NULLNESS:
            null, present = coded.codes[0], coded.codes[1]
            codes[:, coded.number] = null if column is None else np.where(_valid(column), present, null)
        elif column is not None and _is(column, coded.test):
            codes[:, coded.number] = _look_up(column, coded.codes, coded.other)
    for ordered in space.ordered:
        column = columns[ordered.term]
        if column is None:
            continue
        if ordered.kind == values.NUMBER and _is(column, values.NUMBER):
            doubles = pc.cast(column, pa.float64(), safe=False)
            found = number_keys(pc.fill_null(doubles, 0.0).to_numpy(zero_copy_only=False) + 0.0)
            keys[:, ordered.number] = np.where(_valid(column), found, ABSENT)
        elif ordered.kind == values.TIME and pa.types.is_timestamp(column.type):
            micros = pc.cast(pc.cast(column, pa.timestamp("us"), safe=False), pa.int64())
            keys[:, ordered.number] = pc.fill_null(micros, ABSENT).to_numpy(zero_copy_only=False)
        elif _is(column, values.TEXT):
            keys[:, ordered.number] = _map_distinct(column, _text_key(ordered), ABSENT)
    return True


def _column(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array | None | bool:
    """The column a name means; None where there is none, False where it is not a plain one."""
    names = batch.schema.names
    head = path[0]
    if head in ENVELOPE or head in names:
        if head in ("attributes", "data"):
            start: pa.Array = batch.column(head)
        elif head not in names:
            return None
        elif len(path) == 1 and not (head not in ENVELOPE and _shadows(batch, head)):
            column = batch.column(head)
            return column if _is_plain(column) else False
        else:
            return False
        rest = path[1:]
    elif "attributes" in names or "data" in names:
        return False if head not in ("attributes", "data") and _may_hold(batch, head) else None
    else:
        return None
    for name in rest:
        if not pa.types.is_struct(start.type):
            return False
        if start.type.get_field_index(name) < 0:
            return None
        start = pc.struct_field(start, name)
    return start if _is_plain(start) else False


def _may_hold(batch: pa.RecordBatch, name: str) -> bool:
    """Could `attributes` or `data` have something under this name?"""
    for part in ("attributes", "data"):
        if part in batch.schema.names:
            kind = batch.column(part).type
            if not pa.types.is_struct(kind) or kind.get_field_index(name) >= 0:
                return not pa.types.is_null(kind)
    return False


def _shadows(batch: pa.RecordBatch, name: str) -> bool:
    """Is a top-level column with gaps backed by a value elsewhere?"""
    return batch.column(name).null_count > 0 and _may_hold(batch, name)


def _is_plain(column: pa.Array) -> bool:
    kind = column.type
    return any(_is(column, test) for test in (values.TEXT, values.NUMBER, values.BOOLEAN)) or pa.types.is_timestamp(kind) or pa.types.is_null(kind)


def _is(column: pa.Array, test: str) -> bool:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if test == values.TEXT:
        return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if test == values.NUMBER:
        return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return test == values.BOOLEAN and pa.types.is_boolean(kind)


def _valid(column: pa.Array) -> Array:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _look_up(column: pa.Array, known: dict[Any, int], other: int) -> Array:
    return _map_distinct(column, lambda value: known.get(value, other), -1)


def _text_key(ordered: Any) -> Callable[[str], int]:
    if ordered.kind == values.TIME:
        return lambda text: ABSENT if (moment := values.text_as_time(text)) is None else values.micros(moment)
    if ordered.kind == normal.REVERSED:
        return lambda text: int(ordered.labels.key(text[::-1]))
    return ordered.labels.key if ordered.labels is not None else (lambda text: ABSENT)


def _map_distinct(column: pa.Array, number: Callable[[Any], int], missing: int) -> Array:
    """Apply a function to every value, calling it once for each distinct one."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    numbers = np.fromiter((missing if value is None else number(value) for value in distinct), np.int64, len(distinct))
    numbers = np.append(numbers, missing)
    places = pc.fill_null(encoded.indices, len(distinct)) if encoded.indices.null_count else encoded.indices
    return numbers[places.to_numpy(zero_copy_only=False)]
