"""One plain Arrow column → codes and keys, written into dense rows.

Two ways, one answer: the kernels of `columns` read Arrow's buffers as they lie; where Numba is missing (and for columns
that are dictionaries, timestamps or booleans) Arrow finds the distinct values and each is looked up once per batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.filters import normal, values
from tocsin.filters.index import engine
from tocsin.filters.index.labels import ABSENT
from tocsin.filters.index.layout import Array
from tocsin.filters.index.space import Coded, Ordered
from tocsin.filters.index.texts import current_bounds, current_names, current_numbers
from tocsin.filters.index.vectors import number_keys
from tocsin.filters.values import EXACT

__all__ = ["Column", "kind_of_type"]

_FEW = 1500  # values of a dictionary that Arrow can search anew in every batch
_NO_BYTES: Array = np.empty(0, np.uint8)


class Column:
    """A column of one kind; what several dimensions need of it is made once."""

    def __init__(self, array: pa.Array) -> None:
        """Take a column of a type that `kind_of_type` knows."""
        if pa.types.is_string_view(array.type):
            array = array.cast(pa.large_string())
        elif pa.types.is_decimal(array.type):
            array = pc.cast(array, pa.float64(), safe=False)
        self._array = array
        self.kind = kind_of_type(array.type)
        self._is_plain_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
        self._as_doubles: pa.Array | None = None
        self._distinct: tuple[pa.Array, list[Any], Array] | None = None

    @property
    def valid(self) -> Array:
        """For each row: is it not NULL?"""
        return np.asarray(self._array.is_valid().to_numpy(zero_copy_only=False))

    # -- writing into rows

    def write_codes(self, dimension: Coded, codes: Array) -> None:
        """Write each row's code in a coded dimension; rows that are NULL stay as they are."""
        columns = engine.columns()
        if columns is None or not self._is_plain_text:
            codes[:, dimension.number] = self._look_up(dimension)
            return
        names = dimension.names = current_names(dimension.names, dimension.codes, columns.fill_table)
        columns.read_codes(
            *self._text_buffers(), names.texts, names.starts, names.codes, names.table, dimension.other, codes,
            dimension.number,
        )  # fmt: skip

    def write_texts(self, dimension: Ordered, keys: Array) -> None:
        """Write each row's key in an ordered dimension of texts, or of times given as texts."""
        columns = engine.columns()
        if columns is None or not self._is_plain_text or dimension.kind != values.TEXT:
            keys[:, dimension.number] = self._text_keys(dimension)
            return
        assert dimension.labels is not None
        bounds = dimension.bounds = current_bounds(dimension.bounds, dimension.labels)
        columns.read_labels(*self._text_buffers(), bounds.texts, bounds.starts, bounds.labels, keys, dimension.number)

    def write_numbers(self, dimension: Ordered, keys: Array) -> None:
        """Write each row's key in an ordered dimension of numbers."""
        array, doubles = self._array, self._doubles()
        columns = engine.columns()
        if columns is None:
            found = number_keys(doubles.to_numpy(zero_copy_only=False) + 0.0)
            keys[:, dimension.number] = np.where(self.valid, found, ABSENT) if array.null_count else found
            return
        bits = np.frombuffer(doubles.buffers()[1] or b"", np.int64)[doubles.offset : doubles.offset + len(doubles)]
        columns.read_doubles(bits, _validity(doubles), doubles.offset, keys, dimension.number)

    def write_times(self, dimension: Ordered, keys: Array) -> None:
        """Write each row's key in an ordered dimension of timestamps."""
        whole = pc.cast(pc.cast(self._array, pa.timestamp("us"), safe=False), pa.int64())
        keys[:, dimension.number] = pc.fill_null(whole, ABSENT).to_numpy(zero_copy_only=False)

    def _doubles(self) -> pa.Array:
        if self._as_doubles is None:
            array = self._array
            self._as_doubles = array if pa.types.is_float64(array.type) else pc.cast(array, pa.float64(), safe=False)
        return self._as_doubles

    # -- Arrow's buffers

    def _text_buffers(self) -> tuple[Array, Array, Array, int]:
        """Bytes, where each row's begin, bits of rows that are not NULL, and the number of the first bit."""
        array = self._array
        _, offsets, data = array.buffers()
        width = np.int32 if pa.types.is_string(array.type) else np.int64
        starts = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        return np.frombuffer(data, np.uint8) if data else _NO_BYTES, starts, _validity(array), array.offset

    # -- without kernels

    def _look_up(self, dimension: Coded) -> Array:
        """Codes of the values in a coded dimension; -1 for NULL."""
        if self._distinct is None and self._is_plain_text and len(dimension.codes) <= _FEW:
            return self._look_up_few(dimension)
        if self.kind == values.NUMBER and not pa.types.is_dictionary(self._array.type):
            return self._look_up_numbers(dimension)
        _, found, places = self._distinct_values()
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

    def _look_up_numbers(self, dimension: Coded) -> Array:
        """Search the numbers filters name, for all rows at once; all meet as doubles."""
        numbers = dimension.numbers = current_numbers(dimension.numbers, dimension.codes)
        if numbers.table is not None and pa.types.is_signed_integer(self._array.type):
            whole = pc.fill_null(self._array, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
            inside = (whole >= numbers.lowest) & (whole < numbers.lowest + len(numbers.table))
            found = numbers.table[np.where(inside, whole - numbers.lowest, 0)]
            codes = np.where(inside & (found >= 0), found, dimension.other)
        elif len(numbers.values):
            doubles = self._doubles().to_numpy(zero_copy_only=False)
            places = np.minimum(np.searchsorted(numbers.values, doubles), len(numbers.values) - 1)
            codes = np.where(numbers.values[places] == doubles, numbers.codes[places], dimension.other)
        else:
            codes = np.full(len(self._array), dimension.other)
        return np.where(self.valid, codes, -1) if self._array.null_count else codes

    def _text_keys(self, ordered: Ordered) -> Array:
        array, found, places = self._distinct_values()
        if ordered.labels is None:
            moments = [values.text_as_time(text) for text in found]
            return _take([ABSENT if moment is None else values.micros(moment) for moment in moments], places, ABSENT)
        if ordered.kind == normal.REVERSED:
            found = [text[::-1] for text in found]
            array = pa.array(found, pa.string())
        return _take(ordered.labels.keys(found, array), places, ABSENT)

    def _distinct_values(self) -> tuple[pa.Array, list[Any], Array]:
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


def _validity(array: pa.Array) -> Array:
    """The bits of rows that are not NULL, one byte for eight; none where no row is."""
    bits = array.buffers()[0] if array.null_count else None
    return np.frombuffer(bits, np.uint8) if bits is not None else _NO_BYTES


def _take(numbers: Any, places: Array, missing: int) -> Array:
    """The number of each row's value; `missing` for NULL."""
    table = np.empty(len(numbers) + 1, np.int64)
    table[:-1] = numbers
    table[-1] = missing
    return table[places]


def kind_of_type(kind: pa.DataType) -> str | None:
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
