"""Arrow ↔ Arrow: a block of the journal as the columns Spark wants, and back; rows as events for the matcher.

    journal.rows.SCHEMA ──Columns.of_journal──▶ the columns of a schema ──events──▶ Event, for matching
                        ◀────to_journal──────── all of them

`attributes` has a module of its own, and so has `data` (`payloads`); the rest of an event is handed on as it lies.

Promises:
    - `to_journal(Columns(SOURCE_ARROW).of_journal(batch))` equals the batch.
    - The batch has exactly the schema asked for, marks of VARIANTs included: Spark compares.
    - The same values with Numba and without, only later.
Does not promise:
    - That `events` are valid: they are made without asking, since the journal asked. They are for matching, not for
      publishing, and share what they can.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from datetime import datetime
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import force_setattr

from tocsin.errors import EventError, SchemaError
from tocsin.journal import attributes, payloads, rows, variants
from tocsin.journal.variants import VARIANT, is_variant
from tocsin.model import Event

__all__ = ["SOURCE_ARROW", "Columns", "events", "to_journal"]

_DIFFERENT: Final = {"priority": pa.int32(), "attributes": pa.map_(pa.string(), VARIANT), "data": pa.string()}
SOURCE_ARROW: Final = pa.schema([(field.name, _DIFFERENT.get(field.name, field.type)) for field in rows.SCHEMA])
"""The columns of `spark.schema.SCHEMA` in Arrow."""

_TEXTS: Final = pa.map_(pa.string(), pa.string())
_NULLABLE: Final = frozenset(field.name for field in rows.SCHEMA if field.nullable)
_DISTINCT: Final = frozenset(("id", "correlation_id", "offset", "ttl"))  # values that seldom repeat
_PLAIN: Final = Event("-", "-", id="-")
"""What a row is where nothing is said, as in `Matcher.match_batch`."""

_Make = Callable[[pa.RecordBatch], pa.Array]


class Columns:
    """A plan: how to make the columns of one schema. Make it once and use it for every batch.

    Args:
        schema: what Spark wants: some columns of `SOURCE_ARROW`, `attributes` and `data` maybe of other types.

    Raises:
        SchemaError: a column that the source does not have, or of a type it cannot be, or that must not be NULL.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Find out how to make each column."""
        self.schema = schema
        self._makers = [_maker(field) for field in schema]
        needed = set(schema.names) | ({"datacontenttype"} if "data" in schema.names else set())
        self.needs = tuple(name for name in rows.SCHEMA.names if name in needed)
        """Columns of the journal that `of_journal` looks at."""

    def of_journal(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Make the columns of a batch that has at least those of `needs`, as in `rows.SCHEMA`."""
        return pa.RecordBatch.from_arrays([make(batch) for make in self._makers], schema=self.schema)


def to_journal(batch: pa.RecordBatch, columns: Collection[str] | None = None) -> pa.RecordBatch:
    """Undo `of_journal`: a batch with the columns of `SOURCE_ARROW` as one with those of `rows.SCHEMA`.

    Args:
        batch: the batch.
        columns: those that are wanted, as in `contract.Block.batch`; others need not be there, but `datacontenttype`
            must be if `data` is wanted. None: all.

    Raises:
        SchemaError: a column is missing or of another type.
        EventError: values that `of_journal` cannot have made.
    """
    made = []
    schema = pa.schema([rows.SCHEMA.field(name) for name in rows.wanted(columns)])
    for field in schema:
        column = _given(batch, field.name)
        if field.name == "attributes":
            column = attributes.pack(column)
        elif field.name == "data":
            column = payloads.from_text(column, _given(batch, "datacontenttype"))
        elif field.name == "priority":
            column = column.cast(field.type)
        if column.null_count and not field.nullable:
            raise EventError(f"{field.name} is NULL in {column.null_count} rows", field=field.name, help="fill it in")
        made.append(column)
    return pa.RecordBatch.from_arrays(made, schema=schema)


def events(batch: pa.RecordBatch) -> list[Event]:
    """The rows of a batch as events, for matching.

    Args:
        batch: some columns of the source, of any type that `Columns` can make; other columns are not looked at. What is
            missing or NULL is as in `Event(…)`; type, source and id are then `-`.

    Raises:
        EventError: a time that Python cannot hold.
    """
    shared = msgspec.structs.replace(_PLAIN)
    single: dict[str, list[Any]] = {}
    for name in batch.schema.names:
        if name not in rows.SCHEMA.names:
            continue
        column = batch.column(name)
        if column.null_count == len(column):
            continue
        found, is_shared = _values(name, column)
        if is_shared:  # one value for all rows, as most envelope fields have: it is copied with the event
            force_setattr(shared, name, found[0])
        else:
            single[name] = found
    # Not Event(…): asking anew whether every field is good takes twice as long as all the rest.
    made = list(map(Event.__copy__, repeat(shared, batch.num_rows)))  # type: ignore[attr-defined]
    for name, found in single.items():
        deque(map(force_setattr, made, repeat(name), found), maxlen=0)
    return made


# -- to Spark


def _maker(field: pa.Field) -> _Make:
    name, kind = field.name, field.type
    if name not in SOURCE_ARROW.names:
        raise SchemaError(
            f"the source has no column {name}", field=name, help=f"it has {', '.join(SOURCE_ARROW.names)}"
        )
    if name in _NULLABLE and not (field.nullable and _may_be_null(kind)):
        raise SchemaError(f"{name} can be NULL, also inside, but is declared NOT NULL", field=name, help="leave it out")
    if name == "data":
        read = payloads.reader(kind)
        return lambda batch: read(batch.column("data"), batch.column("datacontenttype"))
    if name == "attributes" and kind == _TEXTS:
        return lambda batch: attributes.to_texts(batch.column("attributes"), kind)
    if kind != SOURCE_ARROW.field(name).type:
        raise SchemaError(f"{name} cannot be {kind}", field=name, help=f"it is {SOURCE_ARROW.field(name).type}")
    if name == "attributes":
        return lambda batch: attributes.to_variants(batch.column("attributes"), kind)
    if name == "priority":
        return lambda batch: batch.column("priority").cast(kind)
    return lambda batch: batch.column(name)


def _may_be_null(kind: pa.DataType) -> bool:
    """May everything inside be NULL? A map's names and the parts of a VARIANT never are."""
    if is_variant(kind):
        return True
    if pa.types.is_map(kind):
        return bool(kind.item_field.nullable) and _may_be_null(kind.item_type)
    if pa.types.is_list(kind):
        return bool(kind.value_field.nullable) and _may_be_null(kind.value_type)
    return not pa.types.is_struct(kind) or all(field.nullable and _may_be_null(field.type) for field in kind)


# -- from Spark


def _given(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of the source; a timestamp may be in another zone, which changes no instant."""
    kind = SOURCE_ARROW.field(name).type
    place = batch.schema.get_field_index(name)
    if place < 0:
        raise SchemaError(f"there is no column {name}", field=name, help="give all columns of the source")
    column = batch.column(place)
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(kind) and column.type.tz is not None:
        column = column.cast(kind)
    if column.type != kind:
        raise SchemaError(f"{name} is {column.type}", field=name, help=f"it must be {kind}")
    return column


def _values(name: str, column: pa.Array) -> tuple[list[Any], bool]:
    """A column as an event holds it, and whether one value serves all rows."""
    if name == "attributes":
        return attributes.dicts(column), False
    if name == "data":
        return _payloads(column), False
    if pa.types.is_timestamp(column.type):
        return _moments(name, column), False
    default = getattr(_PLAIN, name)
    if name in _DISTINCT:
        found = column.to_pylist()
        return [default if each is None else each for each in found] if default and column.null_count else found, False
    coded = column.dictionary_encode()  # equal texts are one object then: quicker to make, and to match
    found = [*coded.dictionary.to_pylist(), default]
    if len(found) == 2 and not column.null_count:
        return found, True
    places = coded.indices.fill_null(len(found) - 1).to_numpy()
    return np.array(found, object)[places].tolist(), False


def _payloads(column: pa.Array) -> list[Any]:
    if is_variant(column.type):
        found = column.to_pylist()
        return [None if each is None else variants.decode(each["value"], each["metadata"]) for each in found]
    if pa.types.is_nested(column.type):
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    return [None if each is None else payloads.value_of_text(each) for each in column.to_pylist()]


_read_moments = msgspec.msgpack.Decoder(list[datetime]).decode


def _moments(name: str, column: pa.Array) -> list[datetime | None]:
    """Timestamps in Python, in UTC. As MessagePack's timestamps msgspec reads them ten times as fast as Arrow does."""
    micros = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    seconds, rest = np.divmod(micros.fill_null(0).to_numpy(), 1_000_000)
    packed = np.empty(len(column), [("head", "V3"), ("nanoseconds", ">u4"), ("seconds", ">i8")])
    packed["head"] = b"\xc7\x0c\xff"
    packed["nanoseconds"], packed["seconds"] = rest * 1000, seconds
    try:
        found: list[datetime | None] = _read_moments(b"\xdd" + len(column).to_bytes(4, "big") + packed.tobytes())  # type: ignore[assignment]
    except msgspec.ValidationError:
        raise EventError(f"{name} is beyond the years 1 to 9999", field=name, help="leave such rows out") from None
    for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else ():
        found[row] = None
    return found
