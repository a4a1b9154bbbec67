"""Texts that filters name, as flat arrays of UTF-8 that the kernels of `columns` search; and numbers, as arrays.

Made when Arrow data comes and kept until filters name more; what was added is then appended, so a matcher that grows
while batches pass does not begin anew each time.

Concurrency: one table may be used by several threads. `current` looks at a dictionary (or at labels) by single
operations and, if it grew, makes a new immutable table; two threads may both do so, and the last one stays.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np

from tocsin.filters.index.labels import Array, Labels
from tocsin.filters.values import EXACT

__all__ = ["Bounds", "Named", "Numbers", "current_bounds", "current_names", "current_numbers"]


class Filler(Protocol):
    """The kernel that enters texts in a hash table (`columns.fill_table`)."""

    def __call__(self, texts: Array, starts: Array, done: int, table: Array, /) -> None:
        """Enter the texts from number `done` on."""


class Named(msgspec.Struct, frozen=True):
    """A dictionary of texts: all texts end to end, where each begins, its code, and a hash table of their numbers."""

    texts: Array
    starts: Array
    codes: Array
    table: Array

    @property
    def nbytes(self) -> int:
        """Memory the arrays take."""
        return self.texts.nbytes + self.starts.nbytes + self.codes.nbytes + self.table.nbytes


class Bounds(msgspec.Struct, frozen=True):
    """Sorted texts with their labels."""

    version: int
    texts: Array
    starts: Array
    labels: Array


class Numbers(msgspec.Struct, frozen=True):
    """A dictionary of numbers: in order as doubles, with their codes; and a table, if they lie close together."""

    values: Array
    codes: Array
    lowest: int
    table: Array | None
    """The code of `lowest`, `lowest + 1`, …; -1 where there is none. None if the numbers are too far apart."""


_WIDEST_TABLE = 1 << 16


def current_numbers(known: Numbers | None, codes: dict[Any, int]) -> Numbers:
    """The arrays of a dictionary of codes as it is now."""
    if known is not None and len(known.values) == len(codes):  # codes are only ever added
        return known
    items = dict(codes)  # one operation: another thread may be adding
    named = np.fromiter(items, np.float64, len(items))
    order = np.argsort(named)
    values, found = named[order], np.fromiter(items.values(), np.int64, len(items))[order]
    # Whole numbers of 64 bits are looked for in the table: no such number is 2.5 or infinite, but from 2^53 on several
    # of them are one double, and must be compared as that.
    small = np.abs(values) < EXACT
    inside = small & (values == np.floor(values))
    spans = inside.any() and values[inside][-1] - values[inside][0] < _WIDEST_TABLE
    if not spans or not (small | np.isinf(values)).all():
        return Numbers(values, found, 0, None)
    lowest = int(values[inside][0])
    table: Array = np.full(int(values[inside][-1]) - lowest + 1, -1)
    table[values[inside].astype(np.int64) - lowest] = found[inside]
    return Numbers(values, found, lowest, table)


def current_names(known: Named | None, codes: dict[Any, int], fill: Filler) -> Named:
    """The table of a dictionary of codes as it is now, made from the table it had."""
    if known is not None and len(known.codes) == len(codes):
        return known
    items = list(codes.items())  # one operation: another thread may be adding
    done = len(known.codes) if known is not None else 0
    texts, starts = _end_to_end([text for text, _ in items[done:]], known)
    table: Array = known.table if known is not None else np.empty(0, np.int32)
    if 2 * len(items) > len(table):
        table, done = np.full(max(16, 1 << (4 * len(items) - 1).bit_length()), -1, np.int32), 0
    else:
        table = table.copy()
    fill(texts, starts, done, table)
    return Named(texts, starts, np.array([code for _, code in items], np.int32), table)


def _end_to_end(new: list[str], known: Named | None) -> tuple[Array, Array]:
    encoded = [text.encode() for text in new]
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    texts: Array = np.frombuffer(b"".join(encoded), np.uint8)
    if known is None:
        return texts, np.concatenate([np.zeros(1, np.int64), ends])
    return np.concatenate([known.texts, texts]), np.concatenate([known.starts, known.starts[-1] + ends])


def current_bounds(known: Bounds | None, labels: Labels) -> Bounds:
    """The sorted texts of labels as they are now."""
    if known is not None and known.version == labels.version:
        return known
    version, (texts, numbers) = labels.snapshot()
    flat, starts = _end_to_end(texts, None)
    return Bounds(version, flat, starts, np.array(numbers, np.int64))
