"""Filters added since the last build: the same records, filed in chains instead of sorted postings.

Each conjunction hangs in the chain of one code, one grid node or one ordered dimension, whichever promises to be rare;
what has none of these hangs in the chain that every event walks. Adding is a few array writes, so it is quick and never
blocks a match; the price is no second level and no locality, which does not matter while the delta is small.

Concurrency: one writer. A link is written before the head that leads to it, so a reader finds whole links only. When a
table must move to grow, the heads are copied first: who still holds the old arrays never meets a link that is not in
them.
"""

from __future__ import annotations

import numpy as np

from tocsin.filters.index.build import MAX_LISTED, Segment, interval_node
from tocsin.filters.index.header import GRID_CELLS
from tocsin.filters.index.layout import Column, read_record
from tocsin.filters.index.space import IN, CodedConjunction
from tocsin.filters.index.tables import Tables

__all__ = ["Delta"]


def _heads(count: int) -> Column:
    heads = Column(np.int32, count, fill=-1)
    heads.size = count
    return heads


class Delta:
    """Growing tables and the chains over them, on top of one segment's grids (or none)."""

    def __init__(self, segment: Segment | None, codes: int, orders: int) -> None:
        """Start empty, with room for the codes and ordered dimensions there are."""
        self.stream = Column(np.int32, 64)
        self.places = Column(np.int32)
        self.residues: dict[int, tuple[str, ...]] = {}
        self.code_head = _heads(max(64, codes))
        self.order_head = _heads(max(16, orders))
        self.grid_head = _heads(max(1, len(segment.arrays["grid_bucket"]) if segment else 1))
        self.always_head = _heads(1)
        self.heads = {
            "code": self.code_head,
            "order": self.order_head,
            "grid": self.grid_head,
            "always": self.always_head,
        }
        self.links = _heads(1)
        """How many links there are: kernels need not look at the heads of an empty delta."""
        self.links.view[0] = 0
        self.link_next = Column(np.int32, fill=-1)
        self.link_record = Column(np.int32)
        self.unindexed = 0
        self._grids = segment.arrays["grid"] if segment else np.zeros(0, np.int32)
        self._bounds = memoryview(segment.arrays["grid_bounds"] if segment else np.zeros(0, np.int64))  # type: ignore[arg-type]

    def __len__(self) -> int:
        """Conjunctions added since the build, removed ones among them."""
        return self.places.size

    def reserve(self, codes: int, orders: int) -> bool:
        """Make room for codes and ordered dimensions made meanwhile; True if an array moved."""
        moved = self.code_head.reserve(codes) | self.order_head.reserve(orders)
        self.code_head.size, self.order_head.size = len(self.code_head.view), len(self.order_head.view)
        return moved

    def detach_readers(self) -> None:
        """Go on with copies of the heads: whoever holds the old ones finds no link made from now on."""
        for column in self.heads.values():
            column.replace(column.data.copy())

    def add(self, row: CodedConjunction, words: list[int], code_counts: Column) -> bool:
        """Add and file a conjunction, given as a record's words too; True if an array moved (make a new header)."""
        heads, places = self._place(row, code_counts)
        record = self.stream.size
        moved = self.stream.extend(words)
        self.places.reserve(self.places.size + 1)
        self.places.append(record)
        if row.residues:
            self.residues[record] = row.residues
        moved = self.link_next.reserve(self.link_next.size + len(places)) or moved
        moved = self.link_record.reserve(self.link_record.size + len(places)) or moved
        if moved:
            self.detach_readers()
        target = self.heads[heads].view
        for place in places:
            self.link_record.append(record)
            self.link_next.append(target[place])
            target[place] = self.link_next.size - 1
        self.links.view[0] = self.link_next.size
        return moved

    def _place(self, row: CodedConjunction, code_counts: Column) -> tuple[str, list[int]]:
        """Which heads lead to a conjunction: of its rarest code, a short list of codes, a range, or the one for all."""
        if row.codes:
            return "code", [min(row.codes, key=code_counts.view.__getitem__) if len(row.codes) > 1 else row.codes[0]]
        lists = [test.items for test in row.sets if test.operation == IN]
        if lists and (len(shortest := min(lists, key=len)) <= MAX_LISTED or not row.ranges):
            return "code", shortest
        for dimension, low, high in row.ranges:
            if dimension < len(self._grids) and self._grids[dimension] >= 0:
                grid = int(self._grids[dimension])
                bounds = self._bounds[grid * (GRID_CELLS - 1) : (grid + 1) * (GRID_CELLS - 1)]
                first, count = interval_node(bounds, low, high)
                node = grid * 2 * GRID_CELLS + first
                return "grid", list(range(node, node + count))
        if row.ranges:
            return "order", [row.ranges[0][0]]
        self.unindexed += 1
        return "always", [0]

    def record(self, place: int) -> tuple[CodedConjunction, int, int]:
        """A conjunction with its entry and flags."""
        return read_record(self.stream.data, place, self.residues.get(place, ()))

    def tables(self) -> Tables:
        """All records so far; the arrays are copies."""
        return Tables(self.stream.used.copy(), self.places.used.copy(), dict(self.residues))

    @property
    def size_in_bytes(self) -> int:
        """Memory held."""
        columns = [self.stream, self.places, *self.heads.values(), self.link_next, self.link_record]
        return sum(column.data.nbytes for column in columns)
