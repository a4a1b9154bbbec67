"""Blocks as bytes: how a stretch of the journal is written, verified and read back.

A block holds consecutive offsets. Three formats, told apart by one letter:

    m   MessagePack `[runs, rows]`: cheap to write, also with a single event. `runs` is `[[count, arrived], …]`, since a
        commit gathers requests and each has one arrival; `rows` are those of `rows.py`.
    a   an Arrow segment, made by merging (`segments.py`).
    x   nothing: the block was damaged and `check.repair` took it away. It keeps its offsets and reads as no events.

Promised: `verify` tells any change of the bytes, and a block that was put under other offsets, by a CRC-32 over both.
Not promised: protection against someone who means to deceive; a CRC is no signature.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tocsin.errors import JournalDamagedError
from tocsin.journal import segments, statistics
from tocsin.journal.rows import from_arrow, from_row, to_arrow, wanted
from tocsin.journal.statistics import Statistics
from tocsin.model import Event

__all__ = [
    "ARROW",
    "BLOCK_BYTES",
    "BLOCK_EVENTS",
    "LOST",
    "ROWS",
    "Stored",
    "arrivals_of",
    "batch_of",
    "damaged",
    "events_of",
    "identities_in",
    "identities_of",
    "pack_rows",
    "rows_of",
    "seal",
    "statistics_of",
    "verify",
]

ROWS = "m"
ARROW = "a"
LOST = "x"

BLOCK_EVENTS = 65_536
BLOCK_BYTES = 8 << 20
"""A request larger than this becomes several blocks of one commit: a block is read whole, so it must stay handy."""

_place = struct.Struct("<qqqqc").pack
_count = struct.Struct(">BI").pack
_encode = msgspec.msgpack.Encoder().encode


class Stored(msgspec.Struct, frozen=True):
    """A row of the table `blocks`, whole."""

    first: int
    last: int
    arrived_first: int
    arrived_last: int
    format: str
    checksum: int
    statistics: bytes | None
    publishers: bytes | None
    data: bytes


class _Identity(msgspec.Struct, array_like=True, gc=False):
    """The beginning of a row. MessagePack's reader skips what follows, which makes reopening a journal quick."""

    type: msgspec.Raw
    source: str
    id: str


_Runs = list[tuple[int, int]]
_rows = msgspec.msgpack.Decoder(tuple[_Runs, list[list[Any]]]).decode
_identities = msgspec.msgpack.Decoder(tuple[_Runs, list[_Identity]]).decode
_bare_identities = msgspec.msgpack.Decoder(list[_Identity]).decode
_runs = msgspec.msgpack.Decoder(tuple[_Runs, msgspec.Raw]).decode


def seal(
    format: str,
    first: int,
    last: int,
    arrived: tuple[int, int],
    data: bytes,
    statistics: bytes | None = None,
    publishers: bytes | None = None,
) -> Stored:
    """A block ready to be stored, with its checksum."""
    check = _checksum(format, first, last, *arrived, data)
    return Stored(first, last, *arrived, format, check, statistics, publishers, data)


def pack_rows(
    first: int, runs: Sequence[tuple[int, int]], packed: bytes | memoryview, publishers: bytes | None = None
) -> Stored:
    """A block of format `m` from rows that are MessagePack already, one after the other.

    Args:
        first: the offset of the first row.
        runs: how many rows arrived when, in order.
        packed: the rows.
        publishers: who published them; see `publishers.py`.
    """
    count = sum(size for size, _ in runs)
    # Written by hand so that each row is encoded where it may still fail alone: array of 2, the runs, array of rows.
    data = b"".join((b"\x92", _encode(runs), _count(0xDD, count), packed))
    return seal(ROWS, first, first + count - 1, (runs[0][1], runs[-1][1]), data, None, publishers)


def verify(block: Stored, path: str | None = None) -> None:
    """Compare a block with its checksum.

    Raises:
        JournalDamagedError: they differ.
    """
    if type(block.data) is not bytes or type(block.format) is not str:
        raise damaged(block, "its columns have other types", path)
    found = _checksum(block.format, block.first, block.last, block.arrived_first, block.arrived_last, block.data)
    if found != block.checksum:
        raise damaged(block, f"its checksum is {found:08x}, not {block.checksum:08x}", path)


def damaged(block: Stored, reason: str, path: str | None) -> JournalDamagedError:
    """The error that names a block and what is wrong with it."""
    return JournalDamagedError(
        f"the block of offsets {block.first} to {block.last} is damaged: {reason}",
        path=path,
        first=block.first,
        last=block.last,
        help="see `tocsin journal check`; the other blocks can be read",
    )


def statistics_of(packed: bytes | None) -> Statistics | None:
    """What is known of a block; None if nothing is, or if that is damaged: then the block must be read."""
    try:
        return statistics.load(packed) if packed is not None else None
    except JournalDamagedError:
        return None


def rows_of(block: Stored, path: str | None = None) -> tuple[list[list[Any]], list[int]]:
    """The rows of a block of format `m`, and when each arrived."""
    try:
        runs, rows = _rows(block.data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise damaged(block, str(error), path) from None
    arrived = _spread(runs)
    if len(arrived) != len(rows) or len(rows) != block.last - block.first + 1:
        raise damaged(block, f"it holds {len(rows)} events", path)
    return rows, arrived


def batch_of(block: Stored, path: str | None = None, columns: Collection[str] | None = None) -> pa.RecordBatch:
    """The events of a block as Arrow; `columns` as in `contract.Block.batch`.

    Raises:
        JournalDamagedError: the bytes are not what was written.
    """
    verify(block, path)
    try:
        if block.format == ROWS:
            rows, arrived = rows_of(block, path)
            return to_arrow(rows, block.first, arrived).select(wanted(columns))
        if block.format == ARROW:
            batch = segments.decode(block.data, columns, verified=True)
            if batch.num_rows != block.last - block.first + 1:
                raise damaged(block, f"it holds {batch.num_rows} events", path)
            return batch
        if block.format == LOST:
            return to_arrow([], block.first, []).select(wanted(columns))
    except (pa.ArrowException, JournalDamagedError, ValueError, TypeError) as error:
        raise damaged(block, str(error), path) from None
    raise damaged(block, f"its format {block.format!r} is not known", path)


def events_of(block: Stored, path: str | None = None) -> list[Event]:
    """The events of a block.

    Raises:
        JournalDamagedError: the bytes are not what was written.
    """
    if block.format != ROWS:
        return from_arrow(batch_of(block, path))
    verify(block, path)
    rows, arrived = rows_of(block, path)
    try:
        return [from_row(row, block.first + place, arrived[place]) for place, row in enumerate(rows)]
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise damaged(block, str(error), path) from None


def identities_of(block: Stored, path: str | None = None) -> list[tuple[str, str]]:
    """The (source, id) of each event, in order, without decoding the rest."""
    if block.format == ROWS:
        verify(block, path)
        try:
            found = _identities(block.data)[1]
        except (msgspec.MsgspecError, ValueError) as error:
            raise damaged(block, str(error), path) from None
        if len(found) != block.last - block.first + 1:
            raise damaged(block, f"it holds {len(found)} events", path)
        return [(each.source, each.id) for each in found]
    batch = batch_of(block, path)
    return list(zip(batch.column("source").to_pylist(), batch.column("id").to_pylist(), strict=True))


def identities_in(rows: bytes) -> list[tuple[str, str]]:
    """The same for rows that are in no block yet: a MessagePack array of them."""
    return [(each.source, each.id) for each in _bare_identities(rows)]


def arrivals_of(block: Stored, path: str | None = None) -> list[int]:
    """When each event arrived, in order."""
    if block.format == ROWS:
        verify(block, path)
        try:
            return _spread(_runs(block.data)[0])
        except (msgspec.MsgspecError, ValueError) as error:
            raise damaged(block, str(error), path) from None
    arrived: list[int] = batch_of(block, path).column("arrived").cast(pa.int64()).to_pylist()
    return arrived


def _spread(runs: Iterable[tuple[int, int]]) -> list[int]:
    arrived: list[int] = []
    for count, moment in runs:
        arrived += [moment] * count
    return arrived


def _checksum(format: str, first: int, last: int, arrived_first: int, arrived_last: int, data: bytes) -> int:
    place = _place(first, last, arrived_first, arrived_last, format.encode()[:1])
    return zlib.crc32(data, zlib.crc32(place))
