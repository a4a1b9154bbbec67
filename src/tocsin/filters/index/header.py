"""The header of addresses through which kernels reach the arrays of an index.

`SLOT[name]` is the place of an array's address (or of a counter) in the header. A `Header` keeps the arrays it points
to.
"""

from __future__ import annotations

import numpy as np

from tocsin.filters.index.layout import Array

__all__ = ["GRID_CELLS", "NAMES", "NO_SECOND", "SAMPLES", "SLOT", "WATCH", "Header"]

GRID_CELLS = 256
"""Cells of a grid over an ordered dimension; a power of two, since coarser levels halve it."""

SAMPLES = 512
"""Keys remembered for each ordered dimension, to place the cells of its grid."""
WATCH = 2048
"""Events between looks at whether the index still fits the events; a power of two."""
NO_SECOND = 2**31 - 1
"""Group of the entries that have no second test."""

_SEGMENT = (
    "stream",
    "code_bucket",  # bucket of each code known when the segment was built, or -1
    "order_bucket",  # bucket of each ordered dimension that has no grid, or -1
    "grid",  # grid of each ordered dimension, or -1
    "grid_bounds",  # GRID_CELLS - 1 keys for each grid: cell i holds bounds[i-1] <= key < bounds[i]
    "grid_bucket",  # 2 * GRID_CELLS nodes for each grid (heap order), bucket or -1
    "buckets",  # four words each: first entry, last, first group or -1 where it is small and has none, groups
    "group_dimension",  # coded dimension, or -1 - ordered dimension; NO_SECOND where there is no second test
    "group_first",
    "group_last",
    "entries",  # four words each: signature (two), place of its record in the stream, high end of the second test
    "entry_low",  # second test: code, or upper half of the low key
)
_DELTA = ("stream", "code_head", "order_head", "grid_head", "always_head", "link_next", "link_record", "links")
_EVENT = (
    "codes_in",  # codes of this event
    "keys_in",  # a place for every ordered dimension: NO_KEY, a double where `is_double`, or a key
    "orders_in",  # the ordered dimensions it has
    "is_double",
    "code_dimension",
    "row_codes",
    "row_keys",
    "out_entries",
    "out_residues",  # conjunctions Python must look at: n for the segment, -1 - n for the delta
    "entry_seen",
    "code_counts",
    "key_samples",
    "key_counts",
    "sampled",
    "buckets",  # where to look: buckets of the segment …
    "heads",  # … and chains of the delta
)
_COUNTERS = (
    "coded",  # coded dimensions a row has
    "width",  # ordered dimensions a row has
    "codes_known",  # codes the segment knows
    "orders_known",
    "bucket_count",
    "always_bucket",
    "stamp",
    "residue_count",
    "shared_seen",  # an entry with several keys was reported
    "events",
    "scanned",
    "tested",
    "matched",
)

NAMES = (
    *(f"segment_{name}" for name in _SEGMENT),
    *(f"delta_{name}" for name in _DELTA),
    *_EVENT,
    *_COUNTERS,
)
SLOT = {name: place for place, name in enumerate(NAMES)}


class Header:
    """One header; kernels get `numbers` or its `address`, `view` is a quick way to write counters from Python."""

    __slots__ = ("_pinned", "address", "numbers", "view")

    def __init__(self) -> None:
        """All addresses and counters 0."""
        self.numbers: Array = np.zeros(len(NAMES), np.int64)
        self.address = int(self.numbers.ctypes.data)
        self.view = memoryview(self.numbers)  # type: ignore[arg-type]
        self._pinned: dict[str, Array] = {}

    def pin(self, name: str, array: Array) -> None:
        """Point to an array, and keep it alive as long as this header lives."""
        assert array.flags.c_contiguous
        self._pinned[name] = array
        self.numbers[SLOT[name]] = array.ctypes.data

    def __getitem__(self, name: str) -> int:
        """Read a counter."""
        return int(self.view[SLOT[name]])

    def __setitem__(self, name: str, value: int) -> None:
        """Write a counter."""
        self.view[SLOT[name]] = value
