"""Small blocks read together: the rows of neighbours become one Arrow batch.

A commit of one event is a block of one, until it is merged. Setting up the columns of an Arrow batch costs as much as
thirty rows do, and so does whatever is asked of the batch afterwards; so a reader of many events gathers rows first.

Promised: the events of the blocks it was given, each once, in order; a block is loaded when it is given, not later.
Not promised: which blocks share a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa

from tocsin.journal.blocks import ROWS, Stored, batch_of, rows_of, verify
from tocsin.journal.contract import Block
from tocsin.journal.part import Part
from tocsin.journal.reader import StoredBlock
from tocsin.journal.rows import to_arrow, wanted

__all__ = ["Gathering", "joined", "sized"]

_FEW = 1_024
"""A block of more rows is a batch of its own."""
_ENOUGH_EVENTS = 8_192
_ENOUGH_BYTES = 8 << 20
"""Where gathering ends."""
_CHUNK = 4_096
"""Rows turned into Arrow at a time: 5 ms, after which other threads get their turn."""


def joined(blocks: Sequence[Stored], path: str, columns: Collection[str] | None = None) -> pa.RecordBatch:
    """Consecutive blocks of one format as one batch; `columns` as in `contract.Block.batch`.

    Raises:
        JournalDamagedError: the bytes of one are not what was written.
    """
    if blocks[0].format != ROWS:
        return pa.concat_batches([batch_of(block, path, columns) for block in blocks])
    rows, arrived = [], []
    for block in blocks:
        verify(block, path)
        more, moments = rows_of(block, path)
        rows += more
        arrived += moments
    first, names = blocks[0].first, wanted(columns)
    return pa.concat_batches(
        [
            to_arrow(rows[start : start + _CHUNK], first + start, arrived[start : start + _CHUNK]).select(names)
            for start in range(0, len(rows), _CHUNK)
        ]
    )


class Gathering:
    """Blocks go in one by one, batches come out."""

    def __init__(self, columns: Collection[str] | None = None) -> None:
        """Begin with nothing; `columns` as in `contract.Block.batch`."""
        self._columns = columns
        self._waiting: list[Stored] = []
        self._path = ""
        self._events = self._bytes = 0

    def add(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Take a block that comes after those before; give what is complete.

        Raises:
            TrimmedError: it is no longer kept. Blocks given before are not lost: see `rest`.
        """
        stored = None
        if isinstance(block, StoredBlock | Part) and block.last - block.first < _FEW:
            stored, self._path = block.as_rows(), block.path
        if stored is None:
            batch = block.batch(self._columns)
            yield from self.rest()
            yield batch
            return
        if self._waiting and self._waiting[-1].last + 1 != stored.first:
            yield from self.rest()
        self._waiting.append(stored)
        self._events += stored.last - stored.first + 1
        self._bytes += len(stored.data)
        if self._events >= _ENOUGH_EVENTS or self._bytes >= _ENOUGH_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What was given and has not come out yet."""
        if self._waiting:
            batch = joined(self._waiting, self._path, self._columns)
            self._waiting, self._events, self._bytes = [], 0, 0
            yield batch


def sized(batches: Iterable[pa.RecordBatch], most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a good size: small ones are joined, large ones cut."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= most_rows or size >= most_bytes:
            yield from _cut(waiting, rows, size, most_rows, most_bytes)
            waiting, rows, size = [], 0, 0
    if rows:
        yield from _cut(waiting, rows, size, most_rows, most_bytes)


def _cut(
    batches: Sequence[pa.RecordBatch], rows: int, size: int, most_rows: int, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    most = max(1, min(most_rows, most_bytes * rows // max(size, 1)))
    count = -(-rows // most)
    for part in range(count):  # equal parts, rather than a small one at the end
        start = rows * part // count
        yield batch.slice(start, rows * (part + 1) // count - start)
