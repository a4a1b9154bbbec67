"""A journal in memory: plain lists and dictionaries, so that what it does can be seen to be right.

It is the oracle of the conformance suite, and the journal of tests and of programs that want no file. Each request is a
commit and a block of its own, made inside `submit` on the caller's thread; listeners and `done` are called there too.

Promised: everything `contract.py` promises, except what needs a disk.
Not promised: to survive the process, or to be small (one Python object per event).
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tocsin.clock import SECOND, Clock, SystemClock, as_datetime
from tocsin.errors import JournalError, TocsinError, TrimmedError, WriterError
from tocsin.journal import contract
from tocsin.journal.contract import Block, Committed, Note, Request
from tocsin.journal.rows import Row, from_row, to_arrow, to_row, wanted
from tocsin.journal.statistics import Statistics
from tocsin.model import Event

__all__ = ["MemoryJournal"]

_log = logging.getLogger(__name__)


class _Block:
    """The events of one request. Never changed once made, so any thread may read it."""

    statistics: Statistics | None = None

    def __init__(self, first: int, arrived: int, rows: list[Row], by: str) -> None:
        self.by = by
        self.first = first
        self.last = first + len(rows) - 1
        self.arrived = (arrived, arrived)
        self.rows = rows

    def events(self) -> list[Event]:
        return [from_row(row, self.first + place, self.arrived[0]) for place, row in enumerate(self.rows)]

    def batch(self, columns: Collection[str] | None = None) -> pa.RecordBatch:
        return to_arrow(self.rows, self.first, [self.arrived[0]] * len(self.rows)).select(wanted(columns))


class MemoryJournal:
    """A journal that lives as long as its process. See `contract.Journal` for each method.

    One lock guards everything. It is reentrant, so that a listener may submit; what it submits is committed after the
    commit it hears of, as with a journal on disk.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Begin empty; `append` takes the time from `clock`, the system's if there is none."""
        self.listeners: list[Callable[[Committed], None]] = []
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._lock = threading.RLock()
        self._queue: deque[Request] = deque()
        self._committing = False
        self._closed = False
        self._head = 0
        self._first = 1
        self._newest = 0
        self._blocks: list[_Block] = []
        self._offset_of: dict[tuple[str, str], int] = {}
        self._writers: dict[str, dict[int, list[int]]] = {}
        self._state: dict[str, bytes] = {}
        self._notes: list[Note] = []
        self._commits = 0

    @property
    def head(self) -> int:
        """See `contract.Journal.head`."""
        return self._head

    @property
    def first(self) -> int:
        """See `contract.Journal.first`."""
        return self._first

    @property
    def kept(self) -> int:
        """See `contract.Journal.kept`: there is nothing else."""
        return self._first

    @property
    def crashed(self) -> bool:
        """Never: what crashed is gone."""
        return False

    def commit_here(self) -> None:
        """See `contract.Journal.commit_here`: it was done when it was submitted."""

    def submit(self, request: Request, *, wake: bool = True) -> None:
        """Store a request and call its `done`, before this returns (unless called by a listener)."""
        with self._lock:
            if self._closed:
                raise JournalError("the journal is closed", help="open it again")
            self._queue.append(request)
            if self._committing:  # a listener submits: its turn comes when the commit it hears of is over
                return
            self._committing = True
            try:
                while self._queue:
                    self._commit(self._queue.popleft())
            finally:
                self._committing = False

    def append(self, events: Sequence[Event], writer: str | None = None, position: int | None = None) -> list[int]:
        """See `contract.Journal.append`."""
        with self._lock:
            if self._committing:
                raise JournalError("a listener cannot wait for a commit", help="use submit")
            request = Request(self._clock.now(), events, writer, position)
            self.submit(request)
        if request.error is not None:
            raise request.error
        return list(request.offsets)

    def blocks(self, first: int = 1, last: int | None = None, *, backwards: bool = False) -> Iterator[Block]:
        """See `contract.Journal.blocks`."""
        with self._lock:
            if 1 < first < self._first:
                raise TrimmedError(f"offset {first} is no longer kept", first=self._first)
            last = self._head if last is None else last
            wanted = self._blocks if first <= last else []
            found = [block for block in wanted if block.last >= first and block.first <= last]
        return iter(found[::-1] if backwards else found)

    def read(self, first: int = 1, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """See `contract.Journal.read`."""
        last = self._head if last is None else last
        return (_cut(block, first, last) for block in self.blocks(first, last))

    def offset_at(self, moment: int) -> int:
        """See `contract.Journal.offset_at`."""
        with self._lock:
            place = bisect_left(self._blocks, moment, key=lambda block: block.arrived[0])
            return self._blocks[place].first if place < len(self._blocks) else self._head + 1

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """See `contract.Journal.state`."""
        with self._lock:
            return {name: value for name, value in sorted(self._state.items()) if name.startswith(prefix)}

    def notes(self, offset: int) -> list[Note]:
        """See `contract.Journal.notes`."""
        with self._lock:
            return [note for note in self._notes if note.offset == offset]

    def publisher(self, offset: int) -> str:
        """See `contract.Journal.publisher`."""
        with self._lock:
            return next((block.by for block in self._blocks if block.first <= offset <= block.last), "")

    def trim(self, before: int) -> int:
        """See `contract.Journal.trim`."""
        with self._lock:
            while self._blocks and self._blocks[0].last < before:
                self._first = self._blocks.pop(0).last + 1
            self._notes = [note for note in self._notes if note.offset >= self._first]
            return self._first

    def stats(self) -> dict[str, Any]:
        """See `contract.Journal.stats`."""
        with self._lock:
            return {
                "first": self._first,
                "head": self._head,
                "events": self._head - self._first + 1,
                "blocks": len(self._blocks),
                "bytes": 0,
                "commits": self._commits,
                "ids": len(self._offset_of),
                "queued": len(self._queue),
            }

    def close(self) -> None:
        """Take nothing more. What was stored can still be read."""
        with self._lock:
            self._closed = True

    def abandon(self) -> None:
        """The same: there is nothing to come back to."""
        self.close()

    # How a request is stored. All of it runs under the lock.

    def _commit(self, request: Request) -> None:
        try:
            events = self._store(request)
        except Exception as error:
            wrong = f"a request cannot be stored: {type(error).__name__}: {error}"
            request.error = error if isinstance(error, TocsinError) else JournalError(wrong)
            _call(request)
            return
        self._commits += 1
        if not request.durable:
            _call(request)
        for listener in list(self.listeners):
            try:
                listener(Committed(events, [request]))
            except Exception:
                _log.exception("a listener failed")
        if request.durable:
            _call(request)

    def _store(self, request: Request) -> list[Event]:
        """Store everything or, if anything is wrong, nothing; returns the events stored now."""
        writer, position = request.writer, request.position
        if (writer is None) != (position is None):
            raise JournalError("a writer and a position go together", help="give both, or neither")
        positions = self._writers.get(writer, {}) if writer is not None else {}
        if position is not None:
            if position in positions:
                request.offsets = list(positions[position])
                return []
            if positions and position < max(positions):
                raise WriterError(f"position {position} of writer {writer!r} was never stored, but a later one was")
        if not all(value is None or isinstance(value, bytes) for value in request.state.values()):
            raise JournalError("state is kept as bytes")
        arrived = max(request.arrived, self._newest)
        rows: list[Row] = []
        stored: list[Event] = []
        offsets: list[int] = []
        fresh: dict[tuple[str, str], int] = {}
        for event in request.events:
            key = (event.source, event.id)
            offset = fresh.get(key) or self._known(key, arrived, self._head + len(rows) + 1)
            if offset is None:
                offset = fresh[key] = self._head + len(rows) + 1
                time = event.time if event.time is not None else as_datetime(arrived)
                stored.append(event.replace(offset=offset, arrived=as_datetime(arrived), time=time))
                rows.append(to_row(stored[-1], request.largest))
            offsets.append(offset)
        # From here on nothing can fail.
        if rows:
            self._blocks.append(_Block(self._head + 1, arrived, rows, request.by))
            self._newest = arrived + request.closes
            self._head += len(rows)
            self._offset_of.update(fresh)
        if writer is not None and position is not None:
            kept = self._writers.setdefault(writer, {})
            kept[position] = list(offsets)
            if writer.startswith(contract.CLIENT) and len(kept) > contract.POSITIONS_KEPT:
                del kept[min(kept)]
        for name, value in request.state.items():
            if value is None:
                self._state.pop(name, None)
            else:
                self._state[name] = value
        self._notes.extend(request.notes)
        request.offsets, request.fresh = offsets, len(rows)
        return stored

    def _known(self, key: tuple[str, str], now: int, coming: int) -> int | None:
        """The offset under which an event is remembered, when the next event would get the offset `coming`."""
        offset = self._offset_of.get(key)
        if offset is None or offset < self._first or coming - offset > contract.DEDUP_MOST:
            return None
        if coming - offset <= contract.DEDUP_LEAST:
            return offset
        block = self._blocks[bisect_left(self._blocks, offset, key=lambda block: block.last)]
        return offset if now - block.arrived[0] <= contract.DEDUP_SECONDS * SECOND else None


def _cut(block: Block, first: int, last: int) -> pa.RecordBatch:
    low, high = max(first, block.first), min(last, block.last)
    return block.batch().slice(low - block.first, high - low + 1)


def _call(request: Request) -> None:
    try:
        if request.done is not None:
            request.done(request)
    except Exception:
        _log.exception("the callback of a request failed")
