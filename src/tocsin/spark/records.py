"""Rows of the source as the matcher wants them: columns for the names filters use, events where that is not enough.

A source's `attributes` are VARIANTs in a map and its `data` is JSON text, so neither is a column a filter could name.
Here each name is dug out once per batch, for all rows: from the map by whole columns, from the payload by decoding only
the named members. Where a name's values are of one kind that is a column like any other, and no event is made. Where
kinds are mixed, nested or out of range, the rows are made into events (`journal.columns`), which takes longer.

Promises: both ways give the same answer. Other columns than the source's count as in `Matcher.match_batch`: plain ones
are attributes (where not NULL), nested ones are members of the payload.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, overload

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.filters.index.arrow import Events, Found, Records, beside
from tocsin.filters.index.tables import spread
from tocsin.filters.values import EXACT
from tocsin.journal.columns import events
from tocsin.journal.variants import is_variant
from tocsin.model import ENVELOPE, Event

__all__ = ["SourceRecords"]

_OWN = frozenset((*ENVELOPE, "attributes", "data"))
_INTEGERS = {3 << 2: 1, 4 << 2: 2, 5 << 2: 4, 6 << 2: 8}  # first byte of a VARIANT → bytes of the whole number
_DOUBLE, _LONG_TEXT, _TRUE, _FALSE = 7 << 2, 16 << 2, 1 << 2, 2 << 2
_SHORT_TEXT = 1  # in the lowest two bits
_PLAIN = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}

Array = np.ndarray[Any, Any]


class SourceRecords(Records):
    """The rows of a batch with the source's columns, or some of them, and others beside.

    Args:
        batch: as Spark hands it to Python.
        fields: what filters look at, as in `Matcher.fields`.
    """

    def __init__(self, batch: pa.RecordBatch, fields: Collection[tuple[str, ...]]) -> None:
        """Look at nothing yet."""
        self._found = _Finder(batch, fields)
        self._first, self._count = 0, int(batch.num_rows)

    def __len__(self) -> int:
        """The number of rows."""
        return self._count

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> SourceRecords: ...
    def __getitem__(self, index: int | slice) -> Event | SourceRecords:
        """The event of one row, or the rows of a slice without a step."""
        if isinstance(index, slice):
            start, stop, _ = index.indices(self._count)
            part = object.__new__(SourceRecords)
            part._found, part._first, part._count = self._found, self._first + start, stop - start
            return part
        return self.take([range(self._count)[index]])[0]

    def take(self, rows: Sequence[int]) -> list[Event]:
        """The events of some rows."""
        batch = self._found.batch
        if len(rows) == self._count and rows == range(self._count):
            return _events(batch.slice(self._first, self._count))
        return _events(batch.take(pa.array([self._first + row for row in rows], pa.int64())))

    def column(self, path: tuple[str, ...]) -> Found:
        """What a name means in these rows."""
        found = self._found.column(path)
        return found if found is None or found is False else found.slice(self._first, self._count)


def _events(batch: pa.RecordBatch) -> list[Event]:
    made = events(batch)
    others = [name for name in batch.schema.names if name not in _OWN]
    if others:
        for number, row in enumerate(batch.select(others).to_pylist()):
            attributes, nested = beside(row)
            event = made[number]
            data = event.data
            if nested and (data is None or isinstance(data, dict)):
                data = {**(data or {}), **nested}
            made[number] = event.replace(attributes={**event.attributes, **attributes}, data=data)
    return made


class _Finder:
    """Names → columns, for a whole batch; each is looked for once."""

    def __init__(self, batch: pa.RecordBatch, fields: Collection[tuple[str, ...]]) -> None:
        self.batch = batch
        self._plain = Events(batch.select([name for name in batch.schema.names if name not in ("attributes", "data")]))
        self._nested = {
            field.name for field in batch.schema if field.name not in _OWN and pa.types.is_nested(field.type)
        }
        self._known: dict[tuple[str, ...], Found] = {}
        self._heads = tuple(sorted({head for path in fields if (head := _payload_head(path)) is not None}))
        self._payloads: list[Any] | None = None
        self._entries: tuple[pa.Array, pa.Array, Array] | None = None

    def column(self, path: tuple[str, ...]) -> Found:
        if path not in self._known:
            self._known[path] = self._find(path)
        return self._known[path]

    def _find(self, path: tuple[str, ...]) -> Found:
        head, rest = path[0], path[1:]
        if head in ENVELOPE:
            return self._plain.column(path)
        if head == "attributes":
            if len(rest) != 1 or rest[0] in self._nested:
                return False
            return _first_of(self._plain.column(rest), self._attribute(rest[0]))
        if head == "data":
            return False if not rest or rest[0] in self._nested else self._payload(rest)
        if head in self._nested:
            return False
        attribute = _first_of(self._plain.column((head,)), self._attribute(head))
        if not rest:
            return _first_of(attribute, self._payload(path))
        return self._payload(path) if attribute is None else False  # an attribute hides the member of that name

    # -- attributes

    def _attribute(self, name: str) -> Found:
        if "attributes" not in self.batch.schema.names:
            return None
        if self._entries is None:
            maps = self.batch.column("attributes")
            if not pa.types.is_map(maps.type):
                return False
            starts = maps.offsets.to_numpy()
            owner = np.repeat(np.arange(len(maps)), np.diff(starts))
            names, values = (each.slice(starts[0], starts[-1] - starts[0]) for each in (maps.keys, maps.items))
            if maps.null_count:
                names = pc.if_else(maps.is_valid().take(pa.array(owner)), names, None)
            self._entries = names, values, owner
        names, values, owner = self._entries
        mine = np.flatnonzero(pc.fill_null(pc.equal(names, name), False).to_numpy(zero_copy_only=False))
        if not len(mine):
            return None
        found = _texts_or_scalars(values.take(pa.array(mine)))
        if found is None:
            return False
        places = np.full(self.batch.num_rows, -1)
        places[owner[mine]] = np.arange(len(mine))
        return found.take(pa.array(places, mask=places < 0))

    # -- the payload

    def _payload(self, path: tuple[str, ...]) -> Found:
        if "data" not in self.batch.schema.names:
            return None
        data = self.batch.column("data")
        if pa.types.is_null(data.type) or data.null_count == len(data):
            return None
        if not pa.types.is_string(data.type):
            whole = pa.types.is_struct(data.type) and not is_variant(data.type)
            return Events(self.batch.select(["data"])).column(("data", *path)) if whole else False
        if path[0] not in self._heads:  # a filter that was added meanwhile
            return False
        if self._payloads is None:
            self._payloads = _members(data, self._heads)
        values = list(map(attrgetter(f"m{self._heads.index(path[0])}"), self._payloads))
        for name in path[1:]:
            values = [each.get(name) if each.__class__ is dict else None for each in values]
        return _column(values)


def _payload_head(path: tuple[str, ...]) -> str | None:
    """The member of the payload that a name may mean."""
    head = path[0]
    if head == "data":
        return path[1] if len(path) > 1 else None
    return None if head == "attributes" or head in ENVELOPE else head


def _first_of(one: Found, other: Found) -> Found:
    """One where it is not NULL, else the other; False where they cannot stand in one column."""
    if one is None or other is None or one is False or other is False:
        return False if one is False or other is False else other if one is None else one
    if not one.null_count:
        return one
    return pc.coalesce(one, other) if one.type == other.type else False


@lru_cache(maxsize=64)
def _decoder(heads: tuple[str, ...]) -> tuple[Any, Any]:
    """A decoder that reads these members and passes over all others; and what an object without any is."""
    names = [f"m{number}" for number in range(len(heads))]
    members = msgspec.defstruct(
        "Members", [(name, Any, None) for name in names], rename=dict(zip(names, heads, strict=True)), gc=False
    )
    return msgspec.json.Decoder(members).decode, members()


def _members(data: pa.Array, heads: tuple[str, ...]) -> list[Any]:
    decode, nothing = _decoder(heads)
    found = []
    for text in data.to_pylist():
        try:
            found.append(nothing if text is None else decode(text))
        except (msgspec.DecodeError, ValueError, RecursionError):  # no object, or no JSON: it has no members
            found.append(nothing)
    return found


def _column(values: list[Any]) -> Found:
    """Python's values as a column of one kind."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return None
    try:
        if len(kinds) == 1:
            kind = _PLAIN.get(kinds.pop())
            return False if kind is None else pa.array(values, kind)
        if kinds == {int, float}:
            exact = all(-EXACT < value < EXACT for value in values if value.__class__ is int)
            return (
                pa.array([None if value is None else float(value) for value in values], pa.float64())
                if exact
                else False
            )
    except (pa.ArrowException, OverflowError, ValueError):  # beyond 64 bits, or no proper Unicode
        pass
    return False


# -- VARIANTs


def _texts_or_scalars(values: pa.Array) -> pa.Array | None:
    """The values of some entries as a column of one kind; None where there are several, or others."""
    if not is_variant(values.type):
        return values if pa.types.is_string(values.type) else None
    variants = values.field(0)
    if values.null_count or not pa.types.is_binary(variants.type):
        return None
    _, offsets, data = variants.buffers()
    starts = np.frombuffer(offsets, np.int32)[variants.offset : variants.offset + len(variants)]
    content = np.frombuffer(data, np.uint8)
    heads = content[starts]
    kinds = set(np.unique(heads).tolist())
    if kinds <= _INTEGERS.keys():
        return pa.array(_integers(content, starts, heads, kinds))
    if kinds <= {_DOUBLE}:
        return pa.array(_doubles(content, starts))
    if kinds <= {_DOUBLE, *_INTEGERS}:
        is_double = heads == _DOUBLE
        whole = _integers(content, starts[~is_double], heads[~is_double], kinds - {_DOUBLE})
        if not ((whole > -EXACT) & (whole < EXACT)).all():
            return None
        numbers: Array = np.empty(len(heads))
        numbers[is_double], numbers[~is_double] = _doubles(content, starts[is_double]), whole
        return pa.array(numbers)
    if kinds <= {_TRUE, _FALSE}:
        return pa.array(heads == _TRUE)
    is_short = heads & 3 == _SHORT_TEXT
    if not (is_short | (heads == _LONG_TEXT)).all():
        return None
    sizes = np.where(is_short, heads >> 2, 0).astype(np.int64)
    sizes[~is_short] = _words(content, starts[~is_short], 4).view("<u4")[:, 0]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    texts = content[spread(starts + np.where(is_short, 1, 5), sizes)]
    return pa.Array.from_buffers(pa.string(), len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(texts)], 0)


def _doubles(content: Array, starts: Array) -> Array:
    doubles: Array = _words(content, starts, 8).view("<f8")[:, 0]
    return doubles


def _integers(content: Array, starts: Array, heads: Array, kinds: set[int]) -> Array:
    found = np.empty(len(heads), np.int64)
    for kind in kinds:
        mine, size = heads == kind, _INTEGERS[kind]
        found[mine] = _words(content, starts[mine], size).view(f"<i{size}")[:, 0]
    return found


def _words(content: Array, starts: Array, size: int) -> Array:
    """The bytes behind the first one of each."""
    return np.ascontiguousarray(content[(starts[:, None] + 1) + np.arange(size)])
