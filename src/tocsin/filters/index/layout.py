"""Flat arrays: what a set of conjunctions looks like in memory, and the header that leads a kernel to them.

Conjunctions are rows of three ragged tables (codes, ranges, sets); `starts` arrays say where each row begins. The kernels of
`kernels` read them through one array of addresses, because unboxing dozens of NumPy arrays would cost more than the match.
A header does not own what it points to: whoever keeps a header keeps the arrays too (see `Header.pin`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tocsin.filters.index.space import WITHIN_CUTS, CodedConjunction, SetTest

__all__ = ["ALIVE", "CONJUNCTION_COLUMNS", "MULTIPLE", "RESIDUE", "Array", "Column", "Conjunctions", "code_bits", "order_bits", "read_row"]

Array = npt.NDArray[Any]

ALIVE, RESIDUE, MULTIPLE = 1, 2, 4
"""Flags of a conjunction: 0 = removed; RESIDUE = Python must test more; MULTIPLE = its filter has other alternatives."""

CODE_BITS, ORDER_BITS = 48, 16  # how the 64-bit signature of an event or conjunction is divided


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
        self.fill = fill
        self.size = 0
        self.replace(np.full(capacity, fill, dtype))

    def replace(self, data: Array) -> None:
        """Put another array in place."""
        self.data: Array = data
        self.view = memoryview(data)

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
        self.data[self.size : size] = items
        self.size = size
        return moved

    @property
    def used(self) -> Array:
        """The items in use."""
        return self.data[: self.size]


CONJUNCTION_COLUMNS: dict[str, Any] = {
    "code_starts": np.int32,
    "codes": np.int32,
    "range_starts": np.int32,
    "range_dimensions": np.int32,
    "range_lows": np.int64,
    "range_highs": np.int64,
    "set_starts": np.int32,
    "set_dimensions": np.int32,
    "set_operations": np.int32,
    "set_firsts": np.int32,
    "set_sizes": np.int32,
    "pool_codes": np.int32,
    "pool_cuts": np.int64,
    "entries": np.int32,
    "flags": np.uint8,
}


def read_row(column: dict[str, Array], code: slice, ranged: slice, listed: slice, residues: tuple[str, ...]) -> CodedConjunction:
    """Gather a row from its stretches of the ragged columns."""
    sets = []
    for test in range(listed.start, listed.stop):
        operation, first = int(column["set_operations"][test]), int(column["set_firsts"][test])
        pool = column["pool_cuts" if operation == WITHIN_CUTS else "pool_codes"]
        items = pool[first : first + int(column["set_sizes"][test])].tolist()
        sets.append(SetTest(int(column["set_dimensions"][test]), operation, items))
    ranges = zip(*(column[name][ranged].tolist() for name in ("range_dimensions", "range_lows", "range_highs")), strict=True)
    return CodedConjunction(column["codes"][code].tolist(), list(ranges), sets, residues)


class Conjunctions:
    """Growing conjunction tables: the form in which filters are added."""

    def __init__(self) -> None:
        self.columns = {name: Column(dtype) for name, dtype in CONJUNCTION_COLUMNS.items()}
        self._starts = [self.columns[name] for name in ("code_starts", "range_starts", "set_starts")]
        self._ranges = [self.columns[name] for name in ("range_dimensions", "range_lows", "range_highs")]
        self._sets = [self.columns[name] for name in ("set_dimensions", "set_operations", "set_firsts", "set_sizes")]
        self._codes, self._flags = self.columns["codes"], self.columns["flags"]
        for column in self._starts:
            column.append(0)
        self.residues: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return self._flags.size

    def append(self, row: CodedConjunction, entry: int, multiple: bool) -> bool:
        """Add a row; True if an array moved. The flag is written last: a reader sees a whole row or none."""
        moved = self._make_room(row)
        number = len(self)
        if row.codes:
            put = self._codes.append
            for code in row.codes:
                put(code)
        if row.ranges:
            put_dimension, put_low, put_high = (column.append for column in self._ranges)
            for dimension, low, high in row.ranges:
                put_dimension(dimension)
                put_low(low)
                put_high(high)
        for dimension, operation, items in row.sets:
            pool = self.columns["pool_cuts" if operation == WITHIN_CUTS else "pool_codes"]
            for column, value in zip(self._sets, (dimension, operation, pool.size, len(items)), strict=True):
                column.append(value)
            pool.extend(items)
        code_starts, range_starts, set_starts = self._starts
        code_starts.append(self._codes.size)
        range_starts.append(self._ranges[0].size)
        set_starts.append(self._sets[0].size)
        self.columns["entries"].append(entry)
        if row.residues:
            self.residues[number] = row.residues
        self._flags.append(ALIVE | (RESIDUE if row.residues else 0) | (MULTIPLE if multiple else 0))
        return moved

    def _make_room(self, row: CodedConjunction) -> bool:
        number = len(self) + 2
        moved = self._codes.reserve(self._codes.size + len(row.codes))
        for column in self._ranges:
            moved = column.reserve(column.size + len(row.ranges)) or moved
        for column in (*self._starts, self.columns["entries"], self._flags):
            moved = column.reserve(number) or moved
        if row.sets:
            items = sum(len(test.items) for test in row.sets)
            for column in (*self._sets, self.columns["pool_codes"], self.columns["pool_cuts"]):
                moved = column.reserve(column.size + len(row.sets) + items) or moved
        return moved

    def row(self, number: int) -> CodedConjunction:
        """Read a row back."""
        column = {name: column.data for name, column in self.columns.items()}
        code, ranged, listed = (
            slice(int(column[name][number]), int(column[name][number + 1])) for name in ("code_starts", "range_starts", "set_starts")
        )
        return read_row(column, code, ranged, listed, self.residues.get(number, ()))

    def owner(self, number: int) -> tuple[int, int]:
        """Entry and flags of a row."""
        return int(self.columns["entries"].data[number]), int(self.columns["flags"].data[number])

    def arrays(self) -> dict[str, Array]:
        """The used part of every column."""
        return {name: column.used for name, column in self.columns.items()}
