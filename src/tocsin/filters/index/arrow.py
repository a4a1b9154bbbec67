"""Arrow columns → dense rows, column by column.

Text columns are dictionary-encoded by Arrow, so each distinct text is looked up once per batch; numbers become ordered
keys in one NumPy expression. `encode` answers False, having promised nothing, when a batch or the filters need more
than that (computed terms, arrays, maps, JSON text that filters reach into): the caller then goes through `Events`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, overload

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.errors import MatcherError, TocsinError
from tocsin.filters import normal, values
from tocsin.filters.index.labels import ABSENT
from tocsin.filters.index.layout import Array
from tocsin.filters.index.space import MEMBER, Coded, Ordered
from tocsin.filters.index.vectors import number_keys
from tocsin.filters.index.view import View
from tocsin.filters.syntax import Field
from tocsin.filters.values import EXACT
from tocsin.model import ENVELOPE, Event

__all__ = ["Events", "encode", "pieces"]

_PLAIN_EVENT = Event("-", "-", id="-")
_DEFAULTS = {name: value for name in ENVELOPE if (value := getattr(_PLAIN_EVENT, name)) is not None}
_ENVELOPE_KINDS = {
    name: values.TIME
    if name in ("time", "arrived")
    else values.NUMBER
    if name in ("offset", "priority", "ttl")
    else values.TEXT
    for name in ENVELOPE
} | {"persistent": values.BOOLEAN}
_FEW = 1500  # values of a dictionary that Arrow can search anew in every batch


def pieces(data: pa.Table | pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Cut Arrow data into record batches of at most `size` rows.

    Raises:
        MatcherError: two columns have the same name.
    """
    names = data.schema.names
    if len(set(names)) < len(names):
        raise MatcherError("two columns have the same name", help="rename one: a filter could not say which it means")
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
        try:
            return _event(self._batch.slice(index, 1).to_pylist()[0])
        except (TocsinError, pa.ArrowException, ValueError, OverflowError, RecursionError) as error:
            raise MatcherError(
                f"row {index} cannot be read as an event: {error}", help="see Matcher.match_batch for what columns mean"
            ) from None


def _event(row: dict[str, Any]) -> Event:
    """One event from one row: what `Matcher.match_batch` says of columns, and what `encode` must agree with."""
    fields = {name: row[name] for name in ENVELOPE if row.get(name) is not None}
    for name in ("type", "source", "id"):
        fields.setdefault(name, _DEFAULTS[name])
    attributes = _members(row.get("attributes"))
    data = row.get("data")
    if isinstance(data, str) and row.get("datacontenttype") in (None, "application/json"):
        try:
            data = msgspec.json.decode(data)
        except msgspec.DecodeError:
            fields["datacontenttype"] = "text/plain"
    nested: dict[str, Any] = {}
    for name, value in row.items():
        if name in ENVELOPE or name in ("attributes", "data"):
            continue
        if isinstance(value, list | dict):
            nested[name] = value
        elif isinstance(value, Decimal) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
            attributes[name] = float(value)
        elif isinstance(value, bool | int | float | str) or (isinstance(value, datetime) and value.tzinfo is not None):
            attributes[name] = value
    if nested and (data is None or isinstance(data, dict)):
        data = {**(data or {}), **nested}
    return Event(attributes=attributes, data=data, **fields)


def _members(attributes: Any) -> dict[str, Any]:
    """A struct is a dictionary, a map a list of pairs."""
    if attributes is None:
        return {}
    if not isinstance(attributes, dict | list):
        raise ValueError(f"attributes are {type(attributes).__name__}, not a struct or a map")
    return {name: value for name, value in dict(attributes).items() if value is not None}


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
        if pa.types.is_string_view(array.type):
            array = array.cast(pa.large_string())
        elif pa.types.is_decimal(array.type):
            array = pc.cast(array, pa.float64(), safe=False)
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
        plain = pa.types.is_string(self._array.type) or pa.types.is_large_string(self._array.type)
        if self._distinct is None and plain and len(dimension.codes) <= _FEW:
            return self._look_up_few(dimension)
        _, found, places = self.distinct()
        get, other = dimension.codes.get, dimension.other
        if self.kind == values.NUMBER:  # whole numbers beyond 2^53 meet doubles as doubles
            found = [float(value) if abs(value) >= EXACT else value for value in found]
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
    """The column a name means; None where there is none, False where only whole events can tell."""
    head, rest = path[0], path[1:]
    if head in ENVELOPE:
        return None if rest else _envelope(batch, head)
    if head == "attributes":
        if len(rest) != 1:
            return False
        top = False if rest[0] in _nested(batch) else _top_level(batch, rest[0])
        if not _has(batch, "attributes", rest[0]):
            return top
        return _field(batch, "attributes", rest) if top is None else False
    if head == "data":
        if not rest or rest[0] in _nested(batch):
            return False if "data" in batch.schema.names or _nested(batch) else None
        return _field(batch, "data", rest)
    top = False if head in _nested(batch) else _top_level(batch, head)
    if isinstance(top, bool) or _has(batch, "attributes", head):
        return False
    if top is None:
        return _field(batch, "data", path)
    return False if rest or (top.null_count and _has(batch, "data", head)) else top


def _envelope(batch: pa.RecordBatch, name: str) -> pa.Array | None | bool:
    """An envelope field; where nothing is said it is as in `Event(…)`."""
    default = _DEFAULTS.get(name)
    if name not in batch.schema.names:
        return None if default is None else pa.array([default] * batch.num_rows)
    column = batch.column(name)
    if _kind(column.type) != _ENVELOPE_KINDS[name] or (pa.types.is_timestamp(column.type) and column.type.tz is None):
        return False
    return column if default is None or not column.null_count else pc.fill_null(column, default)


def _top_level(batch: pa.RecordBatch, name: str) -> pa.Array | None | bool:
    """A column that is an attribute; None for one that is of no type an attribute can have."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    kind = _kind(column.type)
    if kind == values.TIME:  # an attribute holds a timestamp as text
        return False if column.type.tz is not None else None
    return None if kind is None else column


def _field(batch: pa.RecordBatch, part: str, path: tuple[str, ...]) -> pa.Array | None | bool:
    """A field below `data` or `attributes`, where that is a struct."""
    if part not in batch.schema.names or pa.types.is_null(batch.column(part).type):
        return None
    column = batch.column(part)
    for name in path:
        if not pa.types.is_struct(column.type):
            return False
        if column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, name)
    return column if _kind(column.type) in (values.TEXT, values.NUMBER, values.BOOLEAN) else False


def _has(batch: pa.RecordBatch, part: str, name: str) -> bool:
    """Could `attributes` or `data` have something under this name?"""
    if part not in batch.schema.names:
        return False
    kind = batch.column(part).type
    return not pa.types.is_null(kind) and (not pa.types.is_struct(kind) or kind.get_field_index(name) >= 0)


def _nested(batch: pa.RecordBatch) -> set[str]:
    """Columns of lists and structs: they are fields of the payload."""
    return {
        field.name
        for field in batch.schema
        if field.name not in ("attributes", "data", *ENVELOPE) and pa.types.is_nested(field.type)
    }


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
