"""Flat memory: growing columns, and the stream in which conjunctions are written.

A conjunction is a *record* of 32-bit words, one after the other in a stream, so that testing it reads one stretch of
memory:

    entry | number of codes, of ranges | flags, number of sets
    for each code:   coded dimension (-1 for a member of an array), code
    for each range:  ordered dimension, upper half of low, upper half of high, lower half of low, lower half of high
    for each set:    dimension, operation, number of items, items (a code is one word; a cut two, upper half first)

A record is known by the place of its first word. Its flags are its only words that ever change.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from tocsin.filters.index.labels import Array
from tocsin.filters.index.space import WITHIN_CUTS, CodedConjunction, SetTest

__all__ = [
    "ALIVE",
    "CODE_WORDS",
    "FLAG_SHIFT",
    "HEAD_WORDS",
    "MULTIPLE",
    "RANGE_WORDS",
    "RESIDUE",
    "SHARED",
    "SET_HEAD_WORDS",
    "Array",
    "Column",
    "code_bits",
    "order_bits",
    "read_record",
    "record_words",
]


ALIVE, RESIDUE, MULTIPLE, SHARED = 1, 2, 4, 8
"""Flags of a conjunction: 0 = removed; RESIDUE = Python must test more; MULTIPLE = its filter has other alternatives;
SHARED = several keys have (or had) this filter."""

HEAD_WORDS, CODE_WORDS, RANGE_WORDS, SET_HEAD_WORDS = 3, 2, 5, 3
FLAG_SHIFT = 24
CODE_BITS, ORDER_BITS = 48, 16  # how the 64-bit signature of an event or conjunction is divided
_LOWER = 0xFFFF_FFFF


def code_bits(codes: Array) -> Array:
    """One bit for each code: what an event must have set for a conjunction with that code to be true."""
    hashed = (codes.astype(np.uint64) * np.uint64(2654435761) >> np.uint64(8)) % np.uint64(CODE_BITS)
    return np.uint64(1) << hashed


def order_bits(dimensions: Array) -> Array:
    """One bit for each ordered dimension."""
    return np.uint64(1) << (np.uint64(CODE_BITS) + dimensions.astype(np.uint64) % np.uint64(ORDER_BITS))


class Column:
    """A NumPy array that grows by doubling. `data[:size]` is in use; one writer, readers hold `data` itself.

    Single items go through `view`: writing through a memoryview is three times as quick as through NumPy.
    """

    __slots__ = ("data", "fill", "size", "view")

    def __init__(self, dtype: Any, capacity: int = 16, fill: int = 0) -> None:
        """Start with no items and room for `capacity`; places not in use hold `fill`."""
        self.fill = fill
        self.size = 0
        self.replace(np.full(capacity, fill, dtype))

    def replace(self, data: Array) -> None:
        """Put another array in place."""
        self.data: Array = data
        self.view = memoryview(data)  # type: ignore[arg-type]

    def reserve(self, size: int) -> bool:
        """Make room for `size` items; True if the array moved."""
        if size <= len(self.view):
            return False
        grown = np.full(max(size, 2 * len(self.data)), self.fill, self.data.dtype)
        grown[: self.size] = self.data[: self.size]
        self.replace(grown)
        return True

    def append(self, item: int) -> None:
        """Append one item; there must be room for it."""
        self.view[self.size] = item
        self.size += 1

    def extend(self, items: Any) -> bool:
        """Append; True if the array moved."""
        size = self.size + len(items)
        moved = self.reserve(size)
        if items.__class__ is list:  # a few: no need to let NumPy find out what they are
            self.view[self.size : size] = array(self.view.format, items)
        else:
            self.data[self.size : size] = items
        self.size = size
        return moved

    @property
    def used(self) -> Array:
        """The items in use."""
        return self.data[: self.size]


def _signed(word: int) -> int:
    """A 32-bit word as NumPy keeps it."""
    return word - 0x1_0000_0000 if word & 0x8000_0000 else word


def record_words(row: CodedConjunction, dimension_of_code: Any, entry: int, multiple: bool) -> list[int]:
    """Write a conjunction as the words of a record."""
    flags = ALIVE | (RESIDUE if row.residues else 0) | (MULTIPLE if multiple else 0)
    words = [entry, len(row.codes) | len(row.ranges) << 16, len(row.sets) | flags << FLAG_SHIFT]
    for code in row.codes:
        words += dimension_of_code(code), code
    for dimension, low, high in row.ranges:
        words += dimension, low >> 32, high >> 32, _signed(low & _LOWER), _signed(high & _LOWER)
    for dimension, operation, items in row.sets:
        words += dimension, operation, len(items)
        if operation == WITHIN_CUTS:
            for cut in items:
                words += cut >> 32, _signed(cut & _LOWER)
        else:
            words += items
    return words


def read_record(stream: Array, place: int, residues: tuple[str, ...]) -> tuple[CodedConjunction, int, int]:
    """Read a record back: the conjunction, its entry and its flags."""
    counts, last = int(stream[place + 1]), int(stream[place + 2])
    code_count, range_count, set_count = counts & 0xFFFF, counts >> 16 & 0xFFFF, last & 0xFF_FFFF
    at = place + HEAD_WORDS
    codes = stream[at + 1 : at + CODE_WORDS * code_count : CODE_WORDS].tolist()
    at += CODE_WORDS * code_count
    ranges = []
    for _ in range(range_count):
        dimension, low_up, high_up, low, high = stream[at : at + RANGE_WORDS].tolist()
        ranges.append((dimension, low_up << 32 | low & _LOWER, high_up << 32 | high & _LOWER))
        at += RANGE_WORDS
    sets = []
    for _ in range(set_count):
        dimension, operation, size = stream[at : at + SET_HEAD_WORDS].tolist()
        at += SET_HEAD_WORDS
        width = 2 if operation == WITHIN_CUTS else 1
        items = stream[at : at + width * size].tolist()
        if operation == WITHIN_CUTS:
            items = [up << 32 | low & _LOWER for up, low in zip(items[::2], items[1::2], strict=True)]
        sets.append(SetTest(dimension, operation, items))
        at += width * size
    return CodedConjunction(codes, ranges, sets, residues), int(stream[place]), last >> FLAG_SHIFT & 0xFF
