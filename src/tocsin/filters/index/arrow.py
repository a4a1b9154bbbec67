"""Arrow data → dense rows, column by column: which column does a name mean, and what event is a row?

How one column becomes numbers is in `column`. `encode` answers False, having promised nothing, when a batch or the
filters need more than plain columns (computed terms, arrays, maps, JSON text that filters reach into): the caller then
asks for the events.

`Records` is what is matched: events made when asked for, and columns where that saves making them. `Events` reads both
from a record batch; whoever has rows of another form writes a class of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias, overload

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.errors import MatcherError, TocsinError
from tocsin.filters import normal, values
from tocsin.filters.index.column import Column, kind_of_type
from tocsin.filters.index.layout import Array
from tocsin.filters.index.space import MEMBER
from tocsin.filters.index.view import View
from tocsin.filters.syntax import Field
from tocsin.model import ENVELOPE, Event

__all__ = ["Events", "Found", "Records", "beside", "encode", "pieces"]

Found: TypeAlias = Any
"""An Arrow array of one kind of scalars; None where nothing has the name; False where only whole events can tell."""

_DENSE = 4  # one in so many rows wanted: from here on reading all is quicker than one by one
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


class Records(Sequence[Event]):
    """Rows as events, made when asked for; a slice (without a step) is `Records` again."""

    @abstractmethod
    def take(self, rows: Sequence[int]) -> list[Event]:
        """The events of some rows: quicker than one by one."""

    def __iter__(self) -> Iterator[Event]:
        """All events, made at once."""
        return iter(self.take(range(len(self))))

    @abstractmethod
    def column(self, path: tuple[str, ...]) -> Found:
        """What a name in a filter means, for all rows; the events must agree with it."""


class Events(Records):
    """The rows of a record batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        """Wrap a batch; nothing is read yet."""
        self._batch = batch
        self._nested = _nested(batch)

    def __len__(self) -> int:
        """The number of rows."""
        return int(self._batch.num_rows)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Events: ...
    def __getitem__(self, index: int | slice) -> Event | Events:
        """The event of one row, or the rows of a slice without a step."""
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return Events(self._batch.slice(start, stop - start))
        return self.take([range(len(self))[index]])[0]

    def take(self, rows: Sequence[int]) -> list[Event]:
        """The events of some rows.

        Raises:
            MatcherError: no event can be made of a row.
        """
        batch = self._batch
        made: list[Event] = []
        try:
            if _DENSE * len(rows) >= len(self):
                found = batch.to_pylist()
                made.extend(_event(found[row]) for row in rows)
            else:
                made.extend(_event(batch.slice(row, 1).to_pylist()[0]) for row in rows)
        except (TocsinError, pa.ArrowException, ValueError, OverflowError, RecursionError) as error:
            raise MatcherError(
                f"row {rows[len(made)]} cannot be read as an event: {error}",
                help="see Matcher.match_batch for what columns mean",
            ) from None
        return made

    def column(self, path: tuple[str, ...]) -> Found:
        """See `Matcher.match_batch` for what columns mean."""
        return _column(self._batch, self._nested, path)


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
    more, nested = beside(row)
    if nested and (data is None or isinstance(data, dict)):
        data = {**(data or {}), **nested}
    return Event(attributes=attributes | more, data=data, **fields)


def beside(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What other columns than an event's own add to a row: attributes, and fields of the payload."""
    attributes: dict[str, Any] = {}
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
    return attributes, nested


def _members(attributes: Any) -> dict[str, Any]:
    """A struct is a dictionary, a map a list of pairs."""
    if attributes is None:
        return {}
    if not isinstance(attributes, dict | list):
        raise ValueError(f"attributes are {type(attributes).__name__}, not a struct or a map")
    return {name: value for name, value in dict(attributes).items() if value is not None}


def encode(view: View, records: Records, codes: Array, keys: Array) -> bool:
    """Fill dense rows from plain columns; False if that is not possible and nothing can be relied on."""
    space = view.space
    if any(not isinstance(value, Field) for value in list(space.terms.values())):
        return False
    columns: dict[str, Column | None] = {}
    for term, value in list(space.terms.items()):
        assert isinstance(value, Field)
        found = records.column(value.path)
        if found is False:
            return False
        columns[term] = None if found is None else Column(found)
    for coded in space.coded[: codes.shape[1]]:  # no further than the rows: another thread may be adding
        column = columns[coded.term]
        if coded.test == MEMBER:
            if column is not None:
                return False
        elif coded.test == normal.NULLNESS:
            null, present = coded.codes[0], coded.codes[1]
            codes[:, coded.number] = null if column is None else np.where(column.valid, present, null)
        elif column is not None and column.kind == coded.test:
            column.write_codes(coded, codes)
    for ordered in space.ordered[: keys.shape[1]]:
        column = columns[ordered.term]
        if column is None:
            continue
        if ordered.kind == values.NUMBER:
            if column.kind == values.NUMBER:
                column.write_numbers(ordered, keys)
        elif ordered.kind == values.TIME and column.kind == values.TIME:
            column.write_times(ordered, keys)
        elif column.kind == values.TEXT:
            column.write_texts(ordered, keys)
    return True


def _column(batch: pa.RecordBatch, nested: set[str], path: tuple[str, ...]) -> Found:
    """The column a name means."""
    head, rest = path[0], path[1:]
    if head in ENVELOPE:
        return None if rest else _envelope(batch, head)
    if head == "attributes":
        if len(rest) != 1:
            return False
        top = False if rest[0] in nested else _top_level(batch, rest[0])
        if not _has(batch, "attributes", rest[0]):
            return top
        return _field(batch, "attributes", rest) if top is None else False
    if head == "data":
        if not rest or rest[0] in nested:
            return False if "data" in batch.schema.names or nested else None
        return _field(batch, "data", rest)
    top = False if head in nested else _top_level(batch, head)
    if isinstance(top, bool) or _has(batch, "attributes", head):
        return False
    if top is None:
        return _field(batch, "data", path)
    return False if rest or (top.null_count and _has(batch, "data", head)) else top


def _envelope(batch: pa.RecordBatch, name: str) -> Found:
    """An envelope field; where nothing is said it is as in `Event(…)`."""
    default = _DEFAULTS.get(name)
    if name not in batch.schema.names:
        return None if default is None else pa.array([default] * batch.num_rows)
    column = batch.column(name)
    if kind_of_type(column.type) != _ENVELOPE_KINDS[name] or (
        pa.types.is_timestamp(column.type) and column.type.tz is None
    ):
        return False
    return column if default is None or not column.null_count else pc.fill_null(column, default)


def _top_level(batch: pa.RecordBatch, name: str) -> Found:
    """A column that is an attribute; None for one that is of no type an attribute can have."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    kind = kind_of_type(column.type)
    if kind == values.TIME:  # an attribute holds a timestamp as text
        return False if column.type.tz is not None else None
    return None if kind is None else column


def _field(batch: pa.RecordBatch, part: str, path: tuple[str, ...]) -> Found:
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
    return column if kind_of_type(column.type) in (values.TEXT, values.NUMBER, values.BOOLEAN) else False


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
