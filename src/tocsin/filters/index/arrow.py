"""Arrow columns → dense rows, column by column.

Text columns are dictionary-encoded by Arrow, so each distinct text is looked up once per batch; numbers become ordered
keys in one NumPy expression. `encode` answers False, having promised nothing, when a batch or the filters need more
than that (computed terms, arrays, maps, JSON text that filters reach into): the caller then goes through `Events`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, overload

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.filters import normal, values
from tocsin.filters.index.labels import ABSENT
from tocsin.filters.index.layout import Array
from tocsin.filters.index.space import MEMBER, Coded, Ordered
from tocsin.filters.index.vectors import number_keys
from tocsin.filters.index.view import View
from tocsin.filters.syntax import Field
from tocsin.model import ENVELOPE, Event

__all__ = ["Events", "encode", "pieces"]

_EXACT = 2**53
_FEW = 1500  # values of a dictionary that Arrow can search anew in every batch


def pieces(data: pa.Table | pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Cut Arrow data into record batches of at most `size` rows."""
    for batch in data.to_batches() if isinstance(data, pa.Table) else [data]:
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)


class Events(Sequence[Event]):
    """The rows of a record batch as events, made when asked for."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        """Wrap a batch; nothing is read yet."""
        self._batch = batch

    def __len__(self) -> int:
        """The number of rows."""
        return int(self._batch.num_rows)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        """The event of one row, or the rows of a slice without a step."""
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
    return Event(
        attributes={name: value for name, value in attributes.items() if value is not None}, data=data, **fields
    )


def encode(view: View, batch: pa.RecordBatch, codes: Array, keys: Array) -> bool:
    """Fill dense rows from plain columns; False if that is not possible and nothing can be relied on."""
    space = view.space
    if any(not isinstance(value, Field) for value in list(space.terms.values())):
        return False
    columns: dict[str, _Column | None] = {}
    for term, value in list(space.terms.items()):
        assert isinstance(value, Field)
        found = _column(batch, value.path)
        if found is False:
            return False
        columns[term] = None if found is None else _Column(found)
    for coded in space.coded[: codes.shape[1]]:  # no further than the rows: another thread may be adding
        column = columns[coded.term]
        if coded.test == MEMBER:
            if column is not None:
                return False
        elif coded.test == normal.NULLNESS:
            null, present = coded.codes[0], coded.codes[1]
            codes[:, coded.number] = null if column is None else np.where(column.valid, present, null)
        elif column is not None and column.kind == coded.test:
            codes[:, coded.number] = column.look_up(coded)
    for ordered in space.ordered[: keys.shape[1]]:
        column = columns[ordered.term]
        if column is None:
            continue
        if ordered.kind == values.NUMBER:
            if column.kind == values.NUMBER:
                keys[:, ordered.number] = column.number_keys()
        elif ordered.kind == values.TIME and column.kind == values.TIME:
            keys[:, ordered.number] = column.micros()
        elif column.kind == values.TEXT:
            keys[:, ordered.number] = column.text_keys(ordered)
    return True


class _Column:
    """One plain column; what several dimensions need of it is made once."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array
        self.kind = _kind(array.type)
        self._distinct: tuple[pa.Array, list[Any], Array] | None = None

    @property
    def valid(self) -> Array:
        return np.asarray(self._array.is_valid().to_numpy(zero_copy_only=False))

    def distinct(self) -> tuple[pa.Array, list[Any], Array]:
        """The distinct values (no NULL among them), and for each row its value's place: behind the last for NULL."""
        if self._distinct is None:
            encoded = self._array if pa.types.is_dictionary(self._array.type) else self._array.dictionary_encode()
            if encoded.dictionary.null_count:
                encoded = pc.cast(encoded, encoded.type.value_type).dictionary_encode()
            found, places = encoded.dictionary, encoded.indices
            if places.null_count:
                places = pc.fill_null(places, len(found))
            self._distinct = found, found.to_pylist(), places.to_numpy(zero_copy_only=False)
        return self._distinct

    def look_up(self, dimension: Coded) -> Array:
        """Codes of the values in a coded dimension; -1 for NULL."""
        if self._distinct is None and self.kind == values.TEXT and len(dimension.codes) <= _FEW:
            return self._look_up_few(dimension)
        _, found, places = self.distinct()
        get, other = dimension.codes.get, dimension.other
        if self.kind == values.NUMBER:  # whole numbers beyond 2^53 meet doubles as doubles
            found = [float(value) if abs(value) >= _EXACT else value for value in found]
        return _take([get(value, other) for value in found], places, -1)

    def _look_up_few(self, dimension: Coded) -> Array:
        """Let Arrow search a short list of values: quicker than finding the distinct ones first."""
        codes = dict(dimension.codes)
        found = pc.index_in(self._array, value_set=pa.array(list(codes), self._array.type), skip_nulls=True)
        missing = -1 if dimension.other < 0 else dimension.other
        table = np.append(np.fromiter(codes.values(), np.int64, len(codes)), missing)
        numbers = table[pc.fill_null(found, len(codes)).to_numpy(zero_copy_only=False)]
        return np.where(self.valid, numbers, -1) if missing >= 0 and self._array.null_count else numbers

    def text_keys(self, ordered: Ordered) -> Array:
        """Keys of the texts in an ordered dimension."""
        array, found, places = self.distinct()
        if ordered.labels is None:
            moments = [values.text_as_time(text) for text in found]
            return _take([ABSENT if moment is None else values.micros(moment) for moment in moments], places, ABSENT)
        if ordered.kind == normal.REVERSED:
            found = [text[::-1] for text in found]
            array = pa.array(found, pa.string())
        return _take(ordered.labels.keys(found, array), places, ABSENT)

    def number_keys(self) -> Array:
        doubles = (
            self._array if pa.types.is_float64(self._array.type) else pc.cast(self._array, pa.float64(), safe=False)
        )
        found = number_keys(doubles.to_numpy(zero_copy_only=False) + 0.0)
        return np.where(self.valid, found, ABSENT) if self._array.null_count else found

    def micros(self) -> Array:
        whole = pc.cast(pc.cast(self._array, pa.timestamp("us"), safe=False), pa.int64())
        return np.asarray(pc.fill_null(whole, ABSENT).to_numpy(zero_copy_only=False))


def _take(numbers: Any, places: Array, missing: int) -> Array:
    """The number of each row's value; `missing` for NULL."""
    table = np.empty(len(numbers) + 1, np.int64)
    table[:-1] = numbers
    table[-1] = missing
    return table[places]


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
    return _kind(column.type) is not None or pa.types.is_null(column.type)


def _kind(kind: pa.DataType) -> str | None:
    """The kind of value a type holds, if filters know one."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return values.TEXT
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return values.NUMBER
    if pa.types.is_boolean(kind):
        return values.BOOLEAN
    return values.TIME if pa.types.is_timestamp(kind) else None
