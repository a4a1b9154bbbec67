"""The hot window: the newest events in memory, older ones from the journal's blocks, a stretch at a time.

A delivery needs its event by offset, mostly a fresh one, which is here already. For an old one, the block is read and a
stretch of events around it is made, since its neighbours will be asked for next; both are kept for a while. What a scan
has made already is lent to the window until it is asked for once. Of an event that nobody waits for only the packed row
is here, if it came as one, and the event is made again when somebody asks after all: that takes two microseconds, and
more where there is more in it, and saves three quarters of the memory.

Promised: `get` gives the event of an offset, from wherever it is, or None if the journal does not keep it. Memory is
bounded: the newest events by `max_bytes`, stretches, blocks and lent events each by a quarter of it (one stretch and
one block are always kept).
Safe in any thread; a look into the window takes no lock.
Not promised: exact bytes. Sizes of events are estimated from their contents, a little high.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import repeat, takewhile
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import pyarrow as pa

from tocsin.errors import TrimmedError
from tocsin.journal import rowed, rows, segments
from tocsin.journal.contract import Block, Journal
from tocsin.model import Event

__all__ = ["HotWindow", "size_of"]

MAX_BYTES = 64 << 20
_STRETCH = 128  # events made at a time: about a millisecond
_MOST = 256  # stretches or blocks: they are looked through one by one
_SAMPLED = 16  # one in so many events is measured; the others are taken to be like it, and those of a commit go with it
_EVENT = 600  # bytes of an event with its texts and times, and its entries here
_ROW = 260  # bytes of a packed row's object, and its entries here
_GROUP = 200  # bytes of what is noted of a few events together
_SIZES: dict[type, int] = {bool: 0, type(None): 0, int: 32, float: 24}

NO_ROWS: Mapping[int, bytes] = MappingProxyType({})

_Kept = TypeVar("_Kept")


class HotWindow:
    """Events by offset.

    Args:
        max_bytes: how much the newest events may take.
        journal: where older events are read; None: nowhere.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, journal: Journal | None = None) -> None:
        """Begin empty."""
        self._max_bytes = max_bytes
        self._journal = journal
        self._lock = threading.Lock()
        self._events: dict[int, Event] = {}
        self._rows: dict[int, bytes] = {}
        self._arrived: dict[int, datetime] = {}  # of those that are here as rows only
        self._sizes: deque[tuple[list[int], int]] = deque()  # offsets of a few events, and what they take
        self._bytes = 0
        self._measured = (0, 0)  # what an event takes that came with its row, and the bytes of that, …
        self._until_next = 0  # … and how many are taken to be like it
        self._lent: dict[int, Event] = {}
        self._lent_sizes: deque[tuple[int, int]] = deque()
        self._lent_bytes = 0
        self._stretches: _Recent[list[Event]] = _Recent(max_bytes // 4)
        self._batches: _Recent[pa.RecordBatch] = _Recent(max_bytes // 4)
        self._hits = self._misses = 0

    def read_from(self, journal: Journal) -> None:
        """Read older events from another journal: the same one, which reaches further back now."""
        self._journal = journal

    def put_many(
        self,
        events: Iterable[Event],
        rows: Mapping[int, bytes] = NO_ROWS,
        awaited: Sequence[object] | None = None,
    ) -> None:
        """Take the events of a commit in: they have offsets, above all that came before.

        Args:
            events: in order.
            rows: the packed rows of some, by offset.
            awaited: for each event, is it true that somebody waits for it? None: for all.
        """
        fresh = list(events)
        offsets = [event.offset for event in fresh]
        if None in offsets:
            raise ValueError("only events out of a journal have a place in the window")
        with self._lock:
            if awaited is None or not rows:
                self._events.update(zip(offsets, fresh, strict=True))  # type: ignore[arg-type]
            elif len(rows) == len(fresh) and not any(awaited):
                self._arrived.update((event.offset, event.arrived) for event in fresh)  # type: ignore[misc]
            else:
                for offset, event, is_awaited in zip(offsets, fresh, awaited, strict=True):
                    if is_awaited or offset not in rows:
                        self._events[offset] = event  # type: ignore[index]
                    else:
                        self._arrived[offset] = event.arrived  # type: ignore[index,assignment]
            self._rows.update(rows)
            for start in range(0, len(fresh), _SAMPLED):  # looking into every payload would take longer than matching
                group = offsets[start : start + _SAMPLED]
                size = self._size_of(group, fresh[start])  # type: ignore[arg-type]
                self._sizes.append((group, size))  # type: ignore[arg-type]
                self._bytes += size
            while self._bytes > self._max_bytes and self._sizes:
                self._pop()

    def _size_of(self, group: list[int], first: Event) -> int:
        """About what a few events take: their rows, and events like the first, larger where their rows are."""
        lengths = [len(row) for row in map(self._rows.get, group) if row is not None]
        events = sum(map(self._events.__contains__, group))
        if not lengths:
            return events * size_of(first) if events else 0
        size = _GROUP + _ROW * len(lengths) + sum(lengths)
        if events:
            length = len(self._rows.get(group[0], b""))
            self._until_next -= len(group)
            if self._until_next < 0 or 2 * length < self._measured[1]:  # that was a larger one
                self._measured = size_of(first), length
                self._until_next = _SAMPLED
            each, length = self._measured
            size += events * each + 2 * max(0, sum(lengths) - len(lengths) * length)  # a small one may have come first
        return size

    def _pop(self) -> None:
        group, size = self._sizes.popleft()
        for held in (self._events, self._rows, self._arrived):
            deque(map(held.pop, group, repeat(None)), maxlen=0)
        self._bytes -= size

    def row(self, offset: int) -> bytes | None:
        """The packed row of an event, if it is here."""
        return self._rows.get(offset)

    def get(self, offset: int) -> Event | None:
        """Return an event, or None if there is none: never published, or trimmed.

        Raises:
            JournalDamagedError: its block cannot be read.
        """
        event = self._events.get(offset)
        if event is None and (event := self._lent.pop(offset, None)) is not None:
            return event
        if event is None:
            event = self._unpacked(offset)
        if event is not None:
            self._hits += 1  # a lost count between threads does no harm
            return event
        self._misses += 1
        stretch = self._stretch(offset)
        place = offset - (stretch[0].offset or 0) if stretch else -1
        return stretch[place] if 0 <= place < len(stretch) else None

    def lend(self, events: Sequence[Event]) -> None:
        """Keep events that a scan has made: each will be asked for soon, and mostly once."""
        size = size_of(events[len(events) // 2]) if events else 0
        kept = self._journal.first if self._journal is not None else 0  # a trim may have come between
        with self._lock:
            for event in events:
                offset = event.offset or 0
                if offset >= kept and offset not in self._events:
                    self._lent[offset] = event
                    self._lent_sizes.append((offset, size))
                    self._lent_bytes += size
            while self._lent_bytes > self._max_bytes // 4:
                offset, size = self._lent_sizes.popleft()
                self._lent.pop(offset, None)  # mostly it was asked for long ago
                self._lent_bytes -= size

    def get_many(self, offsets: Sequence[int]) -> list[Event | None]:
        """Return the events of several offsets, in their order; ascending offsets are read quickest."""
        return [self.get(offset) for offset in offsets]

    def held(self, offset: int) -> Event | None:
        """Return the event at an offset, if it is among the newest."""
        return self._events.get(offset) or self._unpacked(offset)

    def recent(self, first: int, last: int) -> list[Event] | None:
        """Return the events of a range, if all of them are among the newest."""
        found = []
        for offset in range(first, last + 1):
            event = self.held(offset)
            if event is None:
                return None
            found.append(event)
        return found

    def following(self, first: int, last: int) -> Iterator[Event] | None:
        """The events of a range as far as they are among the newest, one by one; None: not even the first is.

        Each is made when it is asked for: who takes them on a loop need not take more than there is time for.
        """
        if first not in self._events and first not in self._arrived:
            return None
        return takewhile(lambda event: event is not None, map(self.held, range(first, last + 1)))  # type: ignore[arg-type]

    def _unpacked(self, offset: int) -> Event | None:
        """The event of a row that is here. Another thread may take it away meanwhile: then there is none."""
        arrived, row = self._arrived.get(offset), self._rows.get(offset)
        return rowed.read(row, offset, arrived) if arrived is not None and row is not None else None

    def drop(self, before: int) -> None:
        """Let go of everything below an offset: it was trimmed."""
        with self._lock:
            while self._sizes and self._sizes[0][0][-1] < before:
                self._pop()
            for offset in self._sizes[0][0] if self._sizes else ():
                if offset < before:
                    for held in (self._events, self._rows, self._arrived):
                        held.pop(offset, None)
        self.forget()

    def forget(self) -> None:
        """Drop what was read from blocks: for instance after a repair. The newest events stay."""
        with self._lock:
            self._lent.clear()
            self._lent_sizes.clear()
            self._lent_bytes = 0
            self._stretches.clear()
            self._batches.clear()

    def stats(self) -> dict[str, int]:
        """Numbers for people: events and bytes held, and how often an event was there or had to be read."""
        with self._lock:
            return {
                "events": len(self._events) + len(self._arrived),
                "bytes": self._bytes,
                "block_bytes": self._stretches.bytes + self._batches.bytes + self._lent_bytes,
                "hits": self._hits,
                "misses": self._misses,
            }

    def _stretch(self, offset: int) -> list[Event]:
        """The events around an offset. Two threads may make the same ones; the second replaces the first."""
        with self._lock:
            found = self._stretches.find(offset)
            if found is not None:
                return found
            batch = self._batches.find(offset)
        if batch is None:
            block = self._block(offset)
            if block is None:
                return []
            if block.last - block.first < _STRETCH:
                return self._kept(block.events())
            batch = block.batch()
            with self._lock:
                self._batches.keep(block.first, block.last, batch, int(batch.nbytes))
            if not batch.num_rows:  # a repair has emptied it
                return []
        first: int = batch.column("offset")[0].as_py()
        low = offset - (offset - first) % _STRETCH
        return self._kept(rows.from_arrow(segments.between(batch, low, low + _STRETCH - 1)))

    def _kept(self, events: list[Event]) -> list[Event]:
        if events:
            with self._lock:
                self._stretches.keep(events[0].offset or 0, events[-1].offset or 0, events, sum(map(size_of, events)))
        return events

    def _block(self, offset: int) -> Block | None:
        if self._journal is None or not self._journal.first <= offset <= self._journal.head:
            return None
        try:
            return next(iter(self._journal.blocks(offset, offset)), None)
        except TrimmedError:  # just now
            return None


class _Recent(Generic[_Kept]):
    """Things that belong to ranges of offsets, the least recently used dropped first. The caller holds the lock."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[int, tuple[int, _Kept, int]] = OrderedDict()
        self.bytes = 0

    def find(self, offset: int) -> _Kept | None:
        for first, (last, thing, _) in reversed(self._kept.items()):  # few, and the last used is likeliest
            if first <= offset <= last:
                self._kept.move_to_end(first)
                return thing
        return None

    def keep(self, first: int, last: int, thing: _Kept, size: int) -> None:
        if (old := self._kept.pop(first, None)) is not None:
            self.bytes -= old[2]
        self._kept[first] = (last, thing, size)
        self.bytes += size
        while len(self._kept) > 1 and (self.bytes > self._max_bytes or len(self._kept) > _MOST):
            _, (_, _, dropped) = self._kept.popitem(last=False)
            self.bytes -= dropped

    def clear(self) -> None:
        self._kept.clear()
        self.bytes = 0


def size_of(event: Event) -> int:
    """Estimate the memory of an event, in bytes."""
    size = _EVENT + len(event.type) + len(event.source) + len(event.id)
    if event.attributes:
        size += _size(event.attributes)
    data = event.data
    return size if data is None else size + _size(data)


def _size(value: Any) -> int:
    """Estimate a payload. Not recursive: a stranger's payload may be deep and wide."""
    size = 0
    waiting = [value]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind is str or kind is bytes:
            size += sys.getsizeof(each)
        elif kind is dict:
            size += sys.getsizeof(each) + 24 * len(each) + sum(map(len, each))  # names are shared, mostly
            waiting += each.values()
        elif kind is list:
            size += 64 + 8 * len(each)
            waiting += each
        else:
            size += _SIZES.get(kind, 64)
    return size
