"""The column `attributes`: the journal's MessagePack ↔ Spark's MAP<STRING, VARIANT>, and MAP<STRING, STRING>.

Two ways, one answer: the kernels of `transcode` where Numba runs and the values are an event's, plain Python elsewhere.

Promises:
    - `pack(to_variants(packed))` is `packed`, byte for byte. Entries keep their order; no entries are NULL.
    - A VARIANT that an event could not hold as it is becomes what it can: a decimal a number, a timestamp its text.
Does not promise:
    - `to_texts` can be undone: the text `1` and the number 1 look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tocsin.errors import EventError
from tocsin.journal import engine
from tocsin.journal.variants import NO_NAMES, VARIANT, decode, encode_scalar
from tocsin.model import MAX_INT

__all__ = ["NONE", "dicts", "pack", "to_texts", "to_variants"]

NONE: dict[str, Any] = {}
"""The attributes of all events without any; never filled."""

_SCALARS = frozenset({bool, int, float, str})
_NOT_FINITE = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(dict).decode
_write_json = msgspec.json.Encoder().encode

Array = np.ndarray[Any, Any]


class _Entries(NamedTuple):
    """Maps as flat columns: where each row's entries begin, and the names and values of all entries."""

    starts: Array
    names: pa.Array
    values: pa.Array


def to_variants(packed: pa.Array, kind: pa.MapType) -> pa.Array:
    """MessagePack as a map of VARIANTs.

    Args:
        packed: the journal's column.
        kind: the Arrow type wanted, a map from text to VARIANT.

    Raises:
        EventError: a row that is not the MessagePack of a map: damage.
    """
    kernels = engine.kernels()
    found = _entries_by_kernel(kernels, packed) if kernels is not None else None
    if found is None:
        found = _entries(packed, encode_scalar, pa.binary())
    count = len(found.values)
    no_names = _texts(pa.binary(), np.arange(count + 1, dtype=np.int32) * len(NO_NAMES), NO_NAMES * count)
    variants = pa.Array.from_buffers(kind.item_type, count, [None], 0, children=[found.values, no_names])
    return _maps(kind, found, variants)


def to_texts(packed: pa.Array, kind: pa.MapType) -> pa.Array:
    """MessagePack as a map of texts: a text as it is, another value as JSON writes it."""
    found = _entries(packed, _as_text, pa.string())
    return _maps(kind, found, found.values)


def pack(attributes: pa.Array) -> pa.Array:
    """A map of VARIANTs as MessagePack, NULL where there are no entries.

    Raises:
        EventError: a VARIANT holds what no attribute can: an object, an array, binary, a number beyond 64 bits.
    """
    kernels = engine.kernels()
    packed = _pack_by_kernel(kernels, attributes) if kernels is not None else None
    if packed is None:
        packed = _column([_pack(_checked(each)) if each else None for each in _decoded(attributes)], pa.binary())
    return packed


def dicts(attributes: pa.Array) -> list[dict[str, Any]]:
    """A map of VARIANTs or of texts as dictionaries, one for each row. Entries that are NULL are left out."""
    kernels = engine.kernels()
    packed = _pack_by_kernel(kernels, attributes) if kernels is not None else None
    if packed is not None:
        return [NONE if each is None else _unpack(each) for each in packed.to_pylist()]
    return list(_decoded(attributes))


# -- to Spark


def _entries_by_kernel(kernels: Any, packed: pa.Array) -> _Entries | None:
    """None: some row is for Python."""
    source = (*_text_buffers(packed), _validity(packed), packed.offset)
    starts, totals = np.zeros(len(packed) + 1, np.int32), np.zeros(2, np.int64)
    if kernels.measure_variants(*source, starts, totals) != kernels.NOTHING:
        return None
    name_starts, value_starts = np.zeros((2, starts[-1] + 1), np.int32)
    names, values = np.empty(totals[0], np.uint8), np.empty(totals[1], np.uint8)
    kernels.write_variants(*source, name_starts, names, value_starts, values)
    return _Entries(starts, _texts(pa.string(), name_starts, names), _texts(pa.binary(), value_starts, values))


def _entries(packed: pa.Array, write: Callable[[Any], Any], kind: pa.DataType) -> _Entries:
    starts = np.zeros(len(packed) + 1, np.int32)
    names: list[str] = []
    values: list[Any] = []
    for row, each in enumerate(packed.to_pylist()):
        if each is not None:
            try:
                entries = _unpack(each)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise EventError(f"attributes of row {row} cannot be read: {error}", field="attributes") from None
            names += entries
            values += map(write, entries.values())
        starts[row + 1] = len(names)
    return _Entries(starts, _column(names, pa.string()), _column(values, kind))


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    column = pa.array(values, kind)
    if isinstance(column, pa.ChunkedArray):
        raise EventError("attributes take more than 2 GiB", field="attributes", help="read fewer rows at a time")
    return column


def _as_text(value: Any) -> str:
    if value.__class__ is str:
        return str(value)
    if value.__class__ is float and not abs(value) < float("inf"):  # JSON has no word for these; Spark's cast has
        return _NOT_FINITE.get(value, "NaN")
    return _write_json(value).decode()


def _maps(kind: pa.MapType, found: _Entries, values: pa.Array) -> pa.Array:
    pair = pa.struct([kind.key_field, kind.item_field])
    entries = pa.Array.from_buffers(pair, len(values), [None], 0, children=[found.names, values])
    bits, nulls = _filled(found.starts)
    starts = pa.py_buffer(found.starts)
    return pa.Array.from_buffers(kind, len(found.starts) - 1, [bits, starts], nulls, children=[entries])


def _texts(kind: pa.DataType, starts: Array, data: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, len(starts) - 1, [None, pa.py_buffer(starts), pa.py_buffer(data)], 0)


def _filled(starts: Array) -> tuple[pa.Buffer | None, int]:
    """Bits of the rows that are not empty, and how many are: a row without entries is NULL."""
    flags = starts[1:] != starts[:-1]
    nulls = len(flags) - int(np.count_nonzero(flags))
    return (pa.py_buffer(np.packbits(flags, bitorder="little")) if nulls else None), nulls


# -- from Spark


def _pack_by_kernel(kernels: Any, attributes: pa.Array) -> pa.Array | None:
    """None: some row is for Python, or these are no VARIANTs."""
    names, variants = attributes.keys, attributes.items
    if variants.type != VARIANT or names.type != pa.string() or variants.null_count or not len(attributes):
        return None
    name_starts, all_names = _text_buffers(names)[::-1]
    value_starts, all_values = _text_buffers(variants.field(0))[::-1]
    starts = _numbers(attributes.buffers()[1], attributes.offset, len(attributes))
    source = (starts, _validity(attributes), attributes.offset, name_starts, value_starts, all_values)
    places = np.zeros(len(attributes) + 1, np.int32)
    if kernels.measure_maps(*source, places) != kernels.NOTHING:
        return None
    room = np.empty(places[-1], np.uint8)
    kernels.write_maps(*source, all_names, places, room)
    bits, nulls = _filled(places)
    return pa.Array.from_buffers(pa.binary(), len(attributes), [bits, pa.py_buffer(places), pa.py_buffer(room)], nulls)


def _decoded(attributes: pa.Array) -> Iterator[dict[str, Any]]:
    """Each row's entries in Python; not NULL ones only."""
    names, items = attributes.keys.to_pylist(), attributes.items
    if items.type == VARIANT:
        pairs = zip(items.field(0).to_pylist(), items.field(1).to_pylist(), items.is_valid().to_pylist(), strict=True)
        values = [decode(value, metadata) if is_there else None for value, metadata, is_there in pairs]
    else:
        values = items.to_pylist()
    starts = attributes.offsets.to_pylist()
    for row, is_there in enumerate(attributes.is_valid().to_pylist()):
        first, last = starts[row], starts[row + 1] if is_there else starts[row]
        found = zip(names[first:last], values[first:last], strict=True)
        yield {name: value for name, value in found if value is not None} if first < last else NONE


def _checked(attributes: dict[str, Any]) -> dict[str, Any]:
    for name, value in attributes.items():
        if value.__class__ not in _SCALARS or (value.__class__ is int and not -MAX_INT - 1 <= value <= MAX_INT):
            raise EventError(
                f"the attribute {name} holds a VARIANT of a kind that attributes cannot have",
                field=f"attributes.{name}",
                help="give a boolean, BIGINT, DOUBLE or STRING; put the rest in data",
            )
    return attributes


# -- Arrow's buffers


def _text_buffers(array: pa.Array) -> tuple[Array, Array]:
    """The bytes of all rows, and where each row's begin."""
    _, starts, data = array.buffers()
    return np.frombuffer(data or b"", np.uint8), _numbers(starts, array.offset, len(array))


def _numbers(buffer: Any, first: int, count: int) -> Array:
    """Where rows begin, and the last ends. An empty column may have no buffer at all."""
    if not count:
        return np.zeros(1, np.int32)
    return np.require(np.frombuffer(buffer, np.int32)[first : first + count + 1], requirements="A")


def _validity(array: pa.Array) -> Array:
    """The bits of rows that are not NULL, one byte for eight; none where no row is."""
    bits = array.buffers()[0] if array.null_count else None
    return np.frombuffer(bits or b"", np.uint8)
