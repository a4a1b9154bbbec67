"""A commit in the making: requests come in one by one, rows, state and positions come out for one transaction.

This is the only place where a request can be refused, and it is refused alone: what it had added is taken back, and
the requests before and after it go on. What is left can only fail as a whole, with the disk.

Used by the writer only, one thread at a time. The loop over events is the hot path of publishing: 3.5 µs per event of
200 bytes, two thirds of it `to_row`. Events that come packed cost 1.3 µs, 2.8 µs if their ids are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import force_setattr

from tocsin.clock import as_datetime, as_micros
from tocsin.errors import EventError, JournalError, TocsinError, WriterError
from tocsin.journal.blocks import BLOCK_BYTES, BLOCK_EVENTS, Stored, pack_rows
from tocsin.journal.contract import Note, Request
from tocsin.journal.ids import Identity, Ids
from tocsin.journal.packed import Chunk, PackedEvents
from tocsin.journal.publishers import pack_publishers
from tocsin.journal.rowed import Rowed
from tocsin.journal.rows import check_size, to_row
from tocsin.model import MAX_INT, Event

__all__ = ["Draft", "never_stored", "pack_offsets", "unpack_offsets"]

COMMIT_EVENTS = 8_192
COMMIT_BYTES = 4 << 20
"""No further request is taken in beyond this: a flush is shared by enough by then, and the first should not wait."""
EVENT_BYTES = 512 << 20
"""SQLite takes values up to a billion bytes; an event beyond half of that is refused by itself."""

_encode_into = msgspec.msgpack.Encoder().encode_into
_copy: Callable[[Event], Event] = Event.__copy__  # type: ignore[attr-defined]
_encode = msgspec.msgpack.Encoder().encode
_runs = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode


def pack_offsets(offsets: Sequence[int]) -> bytes:
    """Offsets as runs of consecutive ones: the answer to a batch is short, however large the batch."""
    if isinstance(offsets, range):
        return _encode([[offsets.start, len(offsets)]] if offsets else [])
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([offset, 1])
    return _encode(runs)


def unpack_offsets(packed: bytes) -> list[int]:
    """Undo `pack_offsets`."""
    return [offset for first, count in _runs(packed) for offset in range(first, first + count)]


class Draft:
    """What the next commit will store."""

    def __init__(self, head: int, newest: int, ids: Ids, answered: Callable[[str, int], Sequence[int] | None]) -> None:
        """Begin after offset `head`, whose event arrived at `newest`.

        Args:
            head: the newest offset stored.
            newest: its arrival.
            ids: what is remembered; this adds to it, and `Ids.back_to(head)` undoes that.
            answered: the stored offsets of a writer's position, None if it may be stored now; raises JournalError.
        """
        self.base = head
        self.head = head
        self.newest = newest
        self.events: list[Event] = []
        """Those that did not come packed; the packed ones follow them."""
        self.rows: dict[int, bytes] = {}
        """The packed rows of some of them, by offset: of those that came as rows."""
        self.requests: list[Request] = []
        self.state: dict[str, bytes | None] = {}
        self.notes: list[Note] = []
        self.writers: dict[tuple[str, int], Sequence[int]] = {}
        self._highest: dict[str, int] = {}
        self._ids = ids
        self._answered = answered
        self._packed = bytearray()
        # First offset, arrival and publisher of each request that brought events.
        self._runs: list[tuple[int, int, str]] = []
        self._cuts: list[tuple[int, int]] = [(head, 0)]  # last offset and end in `_packed` of each block that is full
        # Chunks of each block that comes packed, and its last offset; the (source, id) of its events if they are asked.
        self._ready: list[tuple[int, list[Chunk]]] = []
        self._ready_ids: list[tuple[str, str]] = []
        self._arriving = newest

    @property
    def empty(self) -> bool:
        """Is there nothing to be written?"""
        return not (self.head > self.base or self.state or self.notes or self.writers)

    @property
    def unpacked(self) -> int:
        """The last offset whose event is in `events`; above it they are packed."""
        return self.base + len(self.events)

    @property
    def block_count(self) -> int:
        """How many blocks there will be."""
        return len(self._cuts) - (self._cuts[-1][0] == self.unpacked) + len(self._ready)

    @property
    def full(self) -> bool:
        """Is it large enough for one commit? What comes packed ends it: it may be large, and holds no events."""
        return bool(self._ready) or self.head - self.base >= COMMIT_EVENTS or len(self._packed) >= COMMIT_BYTES

    def add(self, request: Request) -> bool:
        """Take a request in, filling its `offsets` and `fresh`, or refuse it, filling its `error`."""
        head, newest, packed, runs, cuts = self.head, self.newest, len(self._packed), len(self._runs), len(self._cuts)
        try:
            self._take(request)
        except Exception as error:  # whatever is wrong with one request, the others must not suffer
            self.head, self.newest = head, newest
            del self.events[head - self.base :]
            self.rows = {offset: row for offset, row in self.rows.items() if offset <= head}
            del self._packed[packed:]
            del self._runs[runs:]
            del self._cuts[cuts:]
            self._ready, self._ready_ids = [], []
            self._ids.back_to(head)
            request.offsets, request.fresh = [], 0
            request.error = (
                error
                if isinstance(error, TocsinError)
                else JournalError(f"a request cannot be stored: {type(error).__name__}: {error}")
            )
            return False
        self.requests.append(request)
        return True

    def look(self, offset: int) -> Identity:
        """What an event of this draft is, by its offset."""
        if offset > self.unpacked:
            return *self._ready_ids[offset - self.unpacked - 1], self._arriving
        event = self.events[offset - self.base - 1]
        return event.source, event.id, as_micros(event.arrived) if event.arrived is not None else 0

    def blocks(self) -> Iterator[Stored]:
        """The events as blocks, usually one; each is made when it is asked for."""
        cuts = list(self._cuts)
        if cuts[-1][0] != self.unpacked:
            cuts.append((self.unpacked, len(self._packed)))
        with memoryview(self._packed) as whole:
            for (before, start), (last, end) in zip(cuts, cuts[1:], strict=False):
                yield self._block(before + 1, last, whole[start:end])
        before = self.unpacked
        for last, chunks in self._ready:
            yield self._block(before + 1, last, b"".join(chunk.rows() for chunk in chunks))
            before = last

    def _take(self, request: Request) -> None:
        writer, position = request.writer, request.position
        if writer is not None and position is not None:
            stored = self._place_of_writer(writer, position)
            if stored is not None:  # repeated: everything it asks for was done when it came first
                request.offsets, request.fresh = list(stored), 0
                return
        elif writer is not None or position is not None:
            raise JournalError("a writer and a position go together", help="give both, or neither")
        _check(request)
        arrived = max(request.arrived, self.newest)
        before = self.head
        offsets: Sequence[int] = []
        if isinstance(request.events, Rowed):
            offsets = self._take_rowed(request.events, request.largest, arrived)
        elif isinstance(request.events, PackedEvents):
            offsets = self._take_packed(request.events, arrived)
        elif request.events:
            offsets = self._take_events(request, arrived)
        if self.head > before:
            self._runs.append((before + 1, arrived, request.by))
            self.newest = arrived + request.closes
        # From here on nothing can fail.
        if writer is not None and position is not None:
            self.writers[writer, position] = offsets
            self._highest[writer] = position
        if request.state:
            self.state.update(request.state)
        if request.notes:
            self.notes.extend(request.notes)
        # A copy, since ours goes to the disk; a range cannot be changed, and may stand for millions.
        request.offsets = offsets if isinstance(offsets, range) else list(offsets)
        request.fresh = self.head - before

    def _take_events(self, request: Request, arrived: int) -> list[int]:
        moment = as_datetime(arrived)
        self._ids.complete()
        ids, known, packed, events = self._ids, self._ids.known, self._packed, self.events
        offset = before = self.head
        (end, size), largest = self._room(), request.largest
        offsets: list[int] = []
        for event in request.events:
            source, id = event.source, event.id
            code = hash((source, id))
            if code in known:
                earlier = ids.find(code, source, id, arrived, offset + 1)
                if earlier is not None:
                    offsets.append(earlier)
                    continue
            offset += 1
            # A copy without validation, then filled in: the caller's own event never changes.
            event = _copy(event)
            force_setattr(event, "offset", offset)
            force_setattr(event, "arrived", moment)
            if event.time is None:
                force_setattr(event, "time", moment)
            _encode_into(to_row(event, largest), packed, -1)
            known[code] = offset
            events.append(event)
            offsets.append(offset)
            if offset == end or len(packed) >= size:
                self._cut(offset)
                end, size = self._room()
        if offset > before:
            ids.stamp(before + 1, arrived)
            self.head = offset
        return offsets

    def _take_rowed(self, events: Rowed, largest: int, arrived: int) -> list[int]:
        """The same for events that came as rows: nobody else has them, so there is no need for copies."""
        moment = as_datetime(arrived)
        self._ids.complete()
        ids, known, packed, drafted = self._ids, self._ids.known, self._packed, self.events
        offset = before = self.head
        end, size = self._room()
        offsets: list[int] = []
        for event, row in zip(events, events.rows, strict=True):
            source, id = row.source, row.id
            code = hash((source, id))
            if code in known:
                earlier = ids.find(code, source, id, arrived, offset + 1)
                if earlier is not None:
                    offsets.append(earlier)
                    continue
            if largest:
                check_size(row.data, row.attributes, largest)
            offset += 1
            force_setattr(event, "offset", offset)
            force_setattr(event, "arrived", moment)
            if row.time is None:
                row.time = arrived
                force_setattr(event, "time", moment)
            raw = self.rows[offset] = _encode(row)
            packed += raw
            known[code] = offset
            drafted.append(event)
            offsets.append(offset)
            if offset == end or len(packed) >= size:
                self._cut(offset)
                end, size = self._room()
        if offset > before:
            ids.stamp(before + 1, arrived)
            self.head = offset
        return offsets

    def _take_packed(self, packed: PackedEvents, arrived: int) -> Sequence[int]:
        """The same for rows. They are the last of their draft, so that whoever reads ids next finds them stored."""
        ids, before, self._arriving = self._ids, self.head, arrived
        if not packed.unique:
            ids.complete()
        offsets: list[int] = []
        for chunk in packed.chunks:
            if chunk.count > BLOCK_EVENTS or chunk.size > EVENT_BYTES:
                raise JournalError("packed events come in chunks that are too large", help="use packed.pack")
            if ids.is_complete:
                chunk = self._compared(chunk, offsets, arrived)
            else:
                chunk.rows()  # read and compared with its checksum here, where a request still fails alone
            if chunk.count:
                self._file(chunk)
        if self.head > before and ids.is_complete:
            ids.stamp(before + 1, arrived)
        return offsets if ids.is_complete else range(before + 1, self.head + 1)

    def _compared(self, chunk: Chunk, offsets: list[int], arrived: int) -> Chunk:
        """A chunk without what was stored before; the offset of each of its events is added to `offsets`."""
        ids, known, coming, again = self._ids, self._ids.known, self.head + 1, set()
        for place, (source, id) in enumerate(chunk.identities()):
            code = hash((source, id))
            if code in known:
                earlier = ids.find(code, source, id, arrived, coming)
                if earlier is not None:
                    offsets.append(earlier)
                    again.add(place)
                    continue
            known[code] = coming
            offsets.append(coming)
            self._ready_ids.append((source, id))
            coming += 1
        return chunk.without(again) if again else chunk

    def _file(self, chunk: Chunk) -> None:
        """Put a chunk into the block at hand, or begin one."""
        before, chunks = self._ready[-1] if self._ready else (self.head, [])
        size = sum(each.size for each in chunks) + chunk.size
        if not chunks or sum(each.count for each in chunks) + chunk.count > BLOCK_EVENTS or size > BLOCK_BYTES:
            chunks = []
            self._ready.append((before, chunks))
        chunks.append(chunk)
        self.head += chunk.count
        self._ready[-1] = self.head, chunks

    def _room(self) -> tuple[int, int]:
        """Where the block at hand ends at the latest: an offset, and an end in `_packed`."""
        last, end = self._cuts[-1]
        return last + BLOCK_EVENTS, end + BLOCK_BYTES

    def _cut(self, last: int) -> None:
        """End a block with the event just packed."""
        if len(self._packed) - self._cuts[-1][1] > EVENT_BYTES:
            raise EventError(f"an event of more than {EVENT_BYTES} bytes cannot be stored", field="data")
        self._cuts.append((last, len(self._packed)))

    def _block(self, first: int, last: int, packed: bytes | memoryview) -> Stored:
        ends = [start - 1 for start, _, _ in self._runs[1:]] + [self.head]
        runs = [
            (min(end, last) - max(start, first) + 1, arrived, by)
            for (start, arrived, by), end in zip(self._runs, ends, strict=True)
            if end >= first and start <= last
        ]
        publishers = pack_publishers([(count, by) for count, _, by in runs])
        return pack_rows(first, [(count, arrived) for count, arrived, _ in runs], packed, publishers)

    def _place_of_writer(self, writer: str, position: int) -> Sequence[int] | None:
        """The offsets of a position that was stored; None if it may be stored now."""
        if type(position) is not int or not -MAX_INT <= position <= MAX_INT:
            raise JournalError(f"position {position!r} is not a whole number of 64 bits")
        writer.encode()
        stored = self.writers.get((writer, position))
        if stored is not None:
            return stored
        stored = self._answered(writer, position)
        if stored is None and position < self._highest.get(writer, position):
            raise never_stored(writer, position, self._highest[writer])
        return stored


def never_stored(writer: str, position: int, highest: int) -> WriterError:
    """The error for a position that was left out."""
    return WriterError(
        f"position {position} of writer {writer!r} was never stored, but position {highest} was",
        help="number a writer's batches upward, and repeat only what was sent",
    )


def _check(request: Request) -> None:
    """Refuse what SQLite would refuse, while it concerns this request alone. `encode`: lone surrogates raise."""
    request.by.encode()
    for name, value in request.state.items():
        name.encode()
        if value is not None and type(value) is not bytes:
            raise JournalError(f"state is kept as bytes, and {name!r} is {type(value).__name__}")
    for note in request.notes:
        note.step.encode(), note.who.encode()
        if not (-MAX_INT <= note.offset <= MAX_INT and -MAX_INT <= note.at <= MAX_INT):
            raise JournalError("a note's offset and time fit in 64 bits")
