"""Texts that filters name, as flat arrays of UTF-8 that the kernels of `columns` search.

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

__all__ = ["Bounds", "Named", "current_bounds", "current_names"]


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
