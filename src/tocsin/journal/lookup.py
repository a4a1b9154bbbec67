"""Which event is at an offset: asked when a hash says that an event may have been stored before.

Used by the writer only, one thread at a time.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

import pyarrow as pa

from tocsin.errors import JournalDamagedError
from tocsin.journal.blocks import LOST, ROWS, Stored, arrivals_of, batch_of, identities_of
from tocsin.journal.faults import translated
from tocsin.journal.ids import Identity
from tocsin.journal.reader import block_at

__all__ = ["Lookup"]

_log = logging.getLogger(__name__)
_KEPT = 4
"""Blocks kept decoded: a batch that is sent again asks for one event after the other, of one or two blocks."""


class Lookup:
    """Source, id and arrival of stored events, and of those about to be stored."""

    def __init__(
        self, db: sqlite3.Connection, path: str, head: int, first: int, drafted: Callable[[int], Identity | None]
    ) -> None:
        """Look in a file for offsets from `first` to `head`, which may change; ask `drafted` for those above."""
        self._db = db
        self._path = path
        self._drafted = drafted
        self._recent: list[_Identities] = []
        self.head = head
        self.first = first

    def at(self, offset: int) -> Identity | None:
        """What is at an offset; None if it is not kept or cannot be read: such an event counts as not stored."""
        if offset > self.head:
            return self._drafted(offset)
        if offset < self.first:
            return None
        for block in self._recent:
            if block.first <= offset <= block.last:
                return block.at(offset)
        try:
            with translated(self._path):
                stored = block_at(self._db, offset)
            if stored is None or stored.format == LOST:
                return None
            block = _Identities(stored, self._path)
        except JournalDamagedError as error:
            _log.warning("%s", error)
            return None
        self._recent = [block, *self._recent[: _KEPT - 1]]
        return block.at(offset)


class _Identities:
    """The identities of one block. A segment stays Arrow: of its many events few are asked for."""

    def __init__(self, block: Stored, path: str) -> None:
        self.first, self.last = block.first, block.last
        self._batch: pa.RecordBatch | None = None
        if block.format == ROWS:
            self._rows = list(zip(identities_of(block, path), arrivals_of(block, path), strict=True))
        else:
            batch = batch_of(block, path).select(["source", "id", "arrived"])
            self._batch = batch.set_column(2, "arrived", batch.column(2).cast(pa.int64()))

    def at(self, offset: int) -> Identity:
        place = offset - self.first
        if self._batch is None:
            (source, id), arrived = self._rows[place]
            return source, id, arrived
        source, id, arrived = (column[place].as_py() for column in self._batch.columns)
        return source, id, arrived
