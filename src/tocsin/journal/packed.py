"""Events that are rows already: packed where there are hands, stored where there is one writer.

    pack ─▶ chunks of rows, anywhere (a Spark task, say) ─▶ PackedEvents ─▶ Request.events ─▶ blocks, as they are

The writer of a journal copies such rows into blocks without making an event of each: it reads a chunk when its block is
written, so a request may be larger than memory, and still is one transaction.

Promised: what is stored is what `Request.events` with the same events would store. A chunk whose bytes are not those
that were packed refuses the request.
Not promised: that rows are sound which `pack` did not make. A checksum is no signature: take chunks only from programs
you would let write to the file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, overload

import msgspec

from tocsin.errors import JournalError
from tocsin.journal.blocks import BLOCK_BYTES, BLOCK_EVENTS, identities_in
from tocsin.journal.rows import from_row, to_row
from tocsin.model import Event

__all__ = ["Chunk", "PackedEvents", "pack"]

_encode_into = msgspec.msgpack.Encoder().encode_into
_array = struct.Struct(">BI").pack
_raw_rows = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_rows = msgspec.msgpack.Decoder(list[list[Any]]).decode


def pack(
    events: Iterable[Event], largest: int = 0, most: int | None = None, size: int | None = None
) -> Iterator[tuple[bytearray, int]]:
    """Events as rows, in chunks that fit a block: the bytes and how many rows they are.

    Args:
        events: each with its `time`: nobody will stamp it later.
        largest: as in `Request.largest`.
        most: events of a chunk; None: as many as a block has.
        size: bytes after which a chunk ends; None: those of a block.

    Raises:
        EventError: one cannot be stored.
        ValueError: one has no time.
    """
    most, size = most or BLOCK_EVENTS, size or BLOCK_BYTES
    rows, count = bytearray(), 0
    for event in events:
        if event.time is None:
            raise ValueError("an event that is packed needs a time")
        _encode_into(to_row(event, largest), rows, -1)
        count += 1
        if count == most or len(rows) >= size:
            yield rows, count
            rows, count = bytearray(), 0
    if count:
        yield rows, count


class Chunk(msgspec.Struct, frozen=True):
    """Rows that `pack` made, wherever they are kept."""

    count: int
    """How many there are."""
    size: int
    """Their bytes."""
    checksum: int
    """Their CRC-32."""
    read: Callable[[], bytes | bytearray]
    """Fetches them; called more than once."""

    @classmethod
    def of(cls, rows: bytes | bytearray, count: int) -> Chunk:
        """Rows in memory."""
        return cls(count, len(rows), zlib.crc32(rows), lambda: rows)

    def rows(self) -> bytes | bytearray:
        """The rows, compared with their checksum.

        Raises:
            JournalError: they are gone, or not what was packed.
        """
        try:
            rows = self.read()
        except OSError as error:
            raise JournalError(f"packed events cannot be read: {error}", help="pack and send them again") from None
        if len(rows) != self.size or zlib.crc32(rows) != self.checksum:
            raise JournalError("packed events are not what was packed", help="pack and send them again")
        return rows

    def identities(self) -> list[tuple[str, str]]:
        """The (source, id) of each row, in order."""
        return identities_in(self._listed())

    def without(self, places: Collection[int]) -> Chunk:
        """The same but for some rows."""
        kept = [raw for place, raw in enumerate(_raw_rows(self._listed())) if place not in places]
        return Chunk.of(b"".join(bytes(raw) for raw in kept), len(kept))

    def events(self) -> list[Event]:
        """The events, without offset and arrival."""
        return [from_row(row, 1, 0).replace(offset=None, arrived=None) for row in _rows(self._listed())]

    def _listed(self) -> bytes:
        return b"".join((_array(0xDD, self.count), self.rows()))


class PackedEvents(Sequence[Event]):
    """Chunks as the events of a request. Who asks for a single event unpacks its chunk."""

    def __init__(self, chunks: Iterable[Chunk], *, unique: bool = False) -> None:
        """Take the chunks in order.

        Args:
            chunks: at most `BLOCK_EVENTS` rows in each.
            unique: no (source, id) among them was ever stored, and none comes twice: the caller made them so. Then a
                journal that has not read its ids need not do it for these.
        """
        self.chunks = [chunk for chunk in chunks if chunk.count]
        self.unique = unique

    def __len__(self) -> int:
        """How many events there are."""
        return sum(chunk.count for chunk in self.chunks)

    def __iter__(self) -> Iterator[Event]:
        """The events in order, a chunk in memory at a time."""
        for chunk in self.chunks:
            yield from chunk.events()

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | Sequence[Event]:
        """One or some of the events."""
        if isinstance(place, slice):
            return list(self)[place]
        rest = range(len(self))[place]
        for chunk in self.chunks:
            if rest < chunk.count:
                return chunk.events()[rest]
            rest -= chunk.count
        raise IndexError(place)
