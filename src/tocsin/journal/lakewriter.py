"""Writing a stretch of the journal as files of a lake: apart by day and type, in row groups that suit readers.

    blocks ─▶ pieces of some thousand events ─▶ parted by day and type ─▶ the lake's form ─▶ row groups ─▶ files

Promised: what is written depends on the events and their offsets, not on how the journal keeps them. Files are on
stable storage when `write` returns. Memory: the chunk once (for its statistics, up to 512 MiB), and a piece.
Not promised: anything about the directory; it is the caller's to move the files to their place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tocsin.errors import JournalDamagedError, JournalFullError
from tocsin.journal import durably, segments, statistics
from tocsin.journal.contract import Block
from tocsin.journal.gather import Gathering
from tocsin.journal.lakefiles import CUT, FOOTER, LAKE, directory_of, to_lake
from tocsin.journal.manifest import Chunk, File

__all__ = ["write"]

_GROUP_ROWS, _GROUP_BYTES = 1024, 4 << 20
"""A row group ends at a cut if it has so many rows, and anywhere at so many bytes."""
_PIECE_ROWS, _PIECE_BYTES = 16_384, 64 << 20
"""Brought into the lake's form at a time."""
_KNOWN_BYTES = 512 << 20
"""Of a chunk that is larger no statistics are collected: that would take as much memory again."""
_DAY = 86_400_000_000
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,  # 3 takes half as long again and saves nothing on payloads of words and numbers
    "use_dictionary": [
        *("source", "subject", "ack", "cancel", "correlation_id", "classification", "datacontenttype"),
        *("attributes.key_value.key", "attributes.key_value.value.metadata"),
    ],
    "write_statistics": ["offset", "arrived", "time", "id", "source", "subject", "priority", "correlation_id"],
    "write_page_checksum": True,
    "store_schema": False,
}


def write(blocks: Iterable[Block], first: int, last: int, place: str) -> Chunk:
    """Write the offsets from `first` to `last` as files below a directory, which may lie anywhere.

    Args:
        blocks: those that hold the offsets, in order.
        first: the first offset.
        last: the last offset.
        place: where to write. The paths in the answer are relative to it.

    Raises:
        JournalDamagedError: a block cannot be read, or one is missing.
        JournalFullError: the files cannot be written.
    """
    source = _Source(blocks, first, last)
    writers: dict[tuple[int, str], _Writer] = {}
    known: list[pa.RecordBatch] = []
    size = 0
    try:
        for piece in source.pieces():
            size += piece.nbytes
            known = [*known, piece] if size <= _KNOWN_BYTES else []
            for key, part in _parted(piece):
                if key not in writers:
                    writers[key] = _Writer(place, f"{first}-{last}.parquet", *key)
                writers[key].add(part)
        files = tuple(writers[key].close() for key in sorted(writers))
    except OSError as error:
        help = "check its space and permissions"
        raise JournalFullError(f"the lake cannot be written: {error}", path=place, help=help) from None
    finally:
        for writer in writers.values():
            writer.abandon()
    packed = statistics.dump(statistics.collect(pa.concat_batches(known))) if known else None
    return Chunk(first, last, source.arrived, source.ids, files, tuple(source.lost), packed)


class _Source:
    """The blocks of a chunk, cut to its offsets; what is known of the chunk in the end."""

    def __init__(self, blocks: Iterable[Block], first: int, last: int) -> None:
        self._blocks, self._first, self._last = blocks, first, last
        self.arrived, self.ids = (0, 0), ("", "")
        self.lost: list[tuple[int, int]] = []
        self._has_events = False

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Batches of a size that is worth converting."""
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in self._batches():
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _PIECE_ROWS or size >= _PIECE_BYTES:
                yield pa.concat_batches(held)
                held, rows, size = [], 0, 0
        if held:
            yield pa.concat_batches(held)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        gathering = Gathering()
        expected = self._first
        for block in self._blocks:
            if block.first > expected or expected > self._last:
                break
            for batch in gathering.add(block):
                if not batch.num_rows:
                    self._lose(max(block.first, expected), min(block.last, self._last), block.arrived)
                yield from self._taken(batch)
            expected = block.last + 1
        for batch in gathering.rest():
            yield from self._taken(batch)
        if expected <= self._last:
            raise JournalDamagedError(
                f"offsets {expected} to {self._last} are missing", first=expected, last=self._last, help="archive again"
            )

    def _taken(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = segments.between(batch, self._first, self._last)
        if not batch.num_rows:
            return
        ends = batch.take(pa.array([0, batch.num_rows - 1]))
        offsets, ids = ends.column("offset").to_pylist(), ends.column("id").to_pylist()
        arrived = ends.column("arrived").cast(pa.int64()).to_pylist()
        self.arrived = (self.arrived[0] if self._has_events else arrived[0]), arrived[1]
        self.ids = (
            ids[0] if offsets[0] == self._first else self.ids[0],
            ids[1] if offsets[1] == self._last else self.ids[1],
        )
        self._has_events = True
        yield batch

    def _lose(self, first: int, last: int, arrived: tuple[int, int]) -> None:
        if self.lost and self.lost[-1][1] == first - 1:
            first = self.lost.pop()[0]
        self.lost.append((first, last))
        if not self._has_events:
            self.arrived = arrived


def _parted(piece: pa.RecordBatch) -> Iterator[tuple[tuple[int, str], pa.RecordBatch]]:
    """A piece in the lake's form, apart by day and type, each in order."""
    days = piece.column("arrived").cast(pa.int64()).to_numpy() // _DAY
    types = piece.column("type").dictionary_encode()
    names = types.dictionary.to_pylist()
    keys = days * len(names) + types.indices.to_numpy()
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    if len(keys) > 1 and keys[0] != keys[-1]:
        piece = piece.take(pa.array(order))
    converted = to_lake(piece)
    ends = [*np.flatnonzero(np.diff(keys)) + 1, len(keys)]
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        day, name = divmod(int(keys[start]), len(names))
        yield (day, names[name]), converted.slice(start, end - start)


class _Writer:
    """One file in the making."""

    def __init__(self, place: str, name: str, day: int, type: str) -> None:
        self._day, self._type = str(date(1970, 1, 1) + timedelta(days=day)), type
        self._path = f"{directory_of(self._day, type)}/{name}"
        self._place = os.path.join(place, self._path)
        self._file: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = self._cut = 0
        self._count, self._first, self._last = 0, 0, 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows that come after all before."""
        offsets = batch.column("offset").to_numpy()
        cuts = (offsets - 1) // CUT
        ends = [*np.flatnonzero(np.diff(cuts)) + 1, len(cuts)]
        if not self._count:
            self._first = int(offsets[0])
        self._count, self._last = self._count + batch.num_rows, int(offsets[-1])
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            if cuts[start] != self._cut and self._rows >= _GROUP_ROWS:
                self._flush()
            self._cut = cuts[start]
            part = batch.slice(start, end - start)
            step = max(1, _GROUP_BYTES * part.num_rows // max(1, part.nbytes))
            for place in range(0, part.num_rows, step):
                self._hold(part.slice(place, step))

    def _hold(self, part: pa.RecordBatch) -> None:
        self._held.append(part)
        self._rows, self._bytes = self._rows + part.num_rows, self._bytes + part.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        if self._file is None:
            os.makedirs(os.path.dirname(self._place), exist_ok=True)
            self._file = pq.ParquetWriter(self._place, LAKE, **_OPTIONS)
        self._file.write_table(pa.Table.from_batches(self._held, LAKE), row_group_size=self._rows)
        self._held, self._rows, self._bytes = [], 0, 0

    def close(self) -> File:
        """Finish the file and bring it to stable storage."""
        self._flush()
        assert self._file is not None
        self._file.add_key_value_metadata(FOOTER)
        self._file.close()
        durably.sync_file(self._place)
        size = os.path.getsize(self._place)
        return File(self._path, self._day, self._type, self._count, size, self._first, self._last)

    def abandon(self) -> None:
        """Let go of the file, finished or not."""
        if self._file is not None:
            self._file.close()
