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
    """A NumPy array that grows by doubling. `data[:size]` is in use; one writer, readers hold `data` itself."""

    __slots__ = ("data", "size")

    def __init__(self, dtype: Any, capacity: int = 16, fill: int = 0) -> None:
        self.data: Array = np.full(capacity, fill, dtype)
        self.size = 0

    def reserve(self, size: int, fill: int = 0) -> bool:
        """Make room for `size` items; True if the array moved."""
        if size <= len(self.data):
            return False
        grown = np.full(max(size, 2 * len(self.data)), fill, self.data.dtype)
        grown[: self.size] = self.data[: self.size]
        self.data = grown
        return True

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
        for name in ("code_starts", "range_starts", "set_starts"):
            self.columns[name].extend([0])
        self.residues: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return self.columns["flags"].size

    def append(self, row: CodedConjunction, entry: int, multiple: bool) -> bool:
        """Add a row; True if an array moved. The flag is written last: a reader sees a whole row or none."""
        columns = self.columns
        moved = False
        number = len(self)
        if row.codes:
            moved |= columns["codes"].extend(row.codes)
        if row.ranges:
            dimensions, lows, highs = zip(*row.ranges, strict=True)
            moved |= columns["range_dimensions"].extend(dimensions)
            moved |= columns["range_lows"].extend(lows)
            moved |= columns["range_highs"].extend(highs)
        for dimension, operation, items in row.sets:
            pool = columns["pool_cuts" if operation == WITHIN_CUTS else "pool_codes"]
            moved |= columns["set_dimensions"].extend([dimension])
            moved |= columns["set_operations"].extend([operation])
            moved |= columns["set_firsts"].extend([pool.size])
            moved |= columns["set_sizes"].extend([len(items)])
            moved |= pool.extend(items)
        moved |= columns["code_starts"].extend([columns["codes"].size])
        moved |= columns["range_starts"].extend([columns["range_lows"].size])
        moved |= columns["set_starts"].extend([columns["set_sizes"].size])
        moved |= columns["entries"].extend([entry])
        if row.residues:
            self.residues[number] = row.residues
        moved |= columns["flags"].extend([ALIVE | (RESIDUE if row.residues else 0) | (MULTIPLE if multiple else 0)])
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
