"""Merging: many small blocks become one Arrow segment with statistics, in the background, offsets unchanged.

    plan ─▶ read and encode, on a thread of low priority ─▶ put in place, as one short job of the writer

Two steps of size, so that each event is rewritten at most twice: blocks of rows become a segment when enough have come,
and small segments (a quiet journal makes them) become a large one.

While commits follow one another without a pause it waits, since it would take time from them; not for ever: what waits
is bounded (`MOST_WAITING`).

Promised: a reader sees the same events before, during and after; a crash leaves the one or the other.
Not promised: when. A damaged block is left as it is, for `check` to find, and bounds what can be merged around it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tocsin.errors import JournalDamagedError, JournalError, TrimmedError
from tocsin.journal import segments, statistics
from tocsin.journal.blocks import ARROW, ROWS, Stored, seal
from tocsin.journal.gather import joined
from tocsin.journal.publishers import pack_publishers, unpack_publishers
from tocsin.journal.reader import Reader

__all__ = ["Merger", "Piece", "plan"]

_log = logging.getLogger(__name__)

MOST_EVENTS = 65_536
MOST_BYTES = 8 << 20
"""Where a segment ends: large enough that statistics and compression pay, small enough to be read at once."""
ENOUGH_ROWS = 256
"""Blocks of rows that are worth a merge; or fewer, if they fill a segment."""
SMALL_EVENTS = 4_096
ENOUGH_SMALL = 16
"""Segments below `SMALL_EVENTS` are merged again, so many at a time."""
MOST_WAITING = 4 * MOST_EVENTS
MOST_COMMITS = 1_024
"""Events, and commits, that may wait to be merged while there is no pause."""
_PAUSE = 0.5  # seconds without a commit that are one
_LISTED = 4_096
"""Blocks looked at for one plan."""


class Piece(NamedTuple):
    """What planning needs to know of a block."""

    first: int
    last: int
    format: str
    size: int

    @property
    def events(self) -> int:
        """How many it holds."""
        return self.last - self.first + 1


def plan(pieces: Sequence[Piece], *, all: bool = False) -> list[Piece]:
    """The next blocks to be merged into one, oldest first; empty if nothing is worth it.

    Args:
        pieces: consecutive blocks, oldest first.
        all: merge whatever can be, also a single block of rows.
    """
    for run in _runs(pieces):
        taken = _fitting(run)
        if run[0].format == ROWS:
            if all or len(taken) >= ENOUGH_ROWS or len(taken) < len(run) or _fills(taken):
                return taken
        elif len(taken) >= (2 if all else ENOUGH_SMALL):
            return taken
    return []


def _runs(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Neighbours that may be merged with each other: blocks of rows, or small segments."""
    runs: list[list[Piece]] = []
    previous = None
    for piece in pieces:
        kind = _kind(piece)
        if kind and kind != previous:
            runs.append([])
        if kind:
            runs[-1].append(piece)
        previous = kind
    return runs


def _kind(piece: Piece) -> str | None:
    """What a block can be merged with: others of this format. None: it stays as it is."""
    if piece.format == ROWS:
        return ROWS
    return ARROW if piece.format == ARROW and piece.events < SMALL_EVENTS else None


def _fitting(run: Sequence[Piece]) -> list[Piece]:
    """As many of a run, from its beginning, as one segment takes; one at least."""
    events, size = 0, 0
    for place, piece in enumerate(run):
        events, size = events + piece.events, size + piece.size
        if place and (events > MOST_EVENTS or size > MOST_BYTES):
            return list(run[:place])
    return list(run)


def _fills(taken: Sequence[Piece]) -> bool:
    return sum(piece.events for piece in taken) * 2 > MOST_EVENTS or sum(piece.size for piece in taken) * 2 > MOST_BYTES


class Merger:
    """Finds blocks to merge and merges them. One merge at a time, whoever asks for it."""

    def __init__(self, reader: Reader, replace: Callable[[Stored, int], bool], *, background: bool) -> None:
        """Begin.

        Args:
            reader: where blocks are read.
            replace: puts a merged block in the place of so many others; False if they are not there any more.
            background: whether to work without being asked, on a thread.
        """
        self._reader = reader
        self._replace = replace
        self._busy = threading.Lock()
        self._start = 0  # no block before this offset can take part in a merge any more
        self._damaged: set[int] = set()
        self.merged = 0
        """Blocks merged so far."""
        self._commits = 0
        self._waiting_events = self._waiting_commits = 0
        self._wake = threading.Event()
        self._wake.set()  # there may be something left from the last time
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if background:
            self._thread = threading.Thread(target=self._work, name=f"tocsin merge {reader.path}", daemon=True)
            self._thread.start()

    def poke(self, events: int = 0) -> None:
        """Say that there was a commit with so many events. Cheap; called after each."""
        self._commits += 1
        self._waiting_commits += events > 0
        self._waiting_events += events
        if self._commits % 32 == 0:
            self._wake.set()

    def merge_all(self) -> int:
        """Merge whatever can be merged; returns how many blocks were."""
        before = self.merged
        self._start = 0
        while self._step(all=True):
            pass
        return self.merged - before

    def close(self) -> None:
        """Finish the merge at hand and end the thread. May be repeated."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        # At the usual priority. A lower one, which Linux has for each thread, is no kindness: this has the interpreter
        # while it works, and if it does not get a core, all others wait for it. Delays of 70 ms were seen.
        while not self._closing.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                self._wait_for_pause()
                self._waiting_events = self._waiting_commits = 0
                while not self._closing.is_set() and self._step():
                    pass
            except JournalError as error:  # a full disk, most likely: the next commits will wake us again
                _log.warning("blocks are not merged for now: %s", error)
            except Exception:
                _log.exception("merging failed in an unexpected way")

    def _wait_for_pause(self) -> None:
        while self._waiting_events < MOST_WAITING and self._waiting_commits < MOST_COMMITS:
            commits = self._commits
            if self._closing.wait(_PAUSE) or commits == self._commits:
                return

    def _step(self, *, all: bool = False) -> bool:
        """Merge once; False if there is nothing to do."""
        with self._busy:
            while True:
                pieces = self._pieces()
                run = plan(pieces, all=all)
                if run:
                    break
                # What lies before a finished block has no new neighbours to wait for.
                ends = [piece.last for piece in pieces if not _kind(piece)]
                if ends:
                    self._start = ends[-1] + 1
                if len(pieces) < _LISTED or not ends:
                    return False
            try:
                merged = self._encode(run)
            except JournalDamagedError as error:
                _log.warning("%s", error)
                found = {piece.first for piece in run if not self._readable(piece)}
                self._damaged |= found
                return bool(found)
            except TrimmedError:  # the oldest of them went meanwhile
                return True
            if self._replace(merged, len(run)):
                self.merged += len(run)
            return True

    def _pieces(self) -> list[Piece]:
        with self._reader.connection() as db:
            found = db.execute(
                f"SELECT first, last, format, length(data) FROM blocks WHERE first >= ? ORDER BY first LIMIT {_LISTED}",
                (self._start,),
            ).fetchall()
        return [Piece(first, last, "" if first in self._damaged else kind, size) for first, last, kind, size in found]

    def _readable(self, piece: Piece) -> bool:
        try:
            self._encode([piece])
        except JournalDamagedError:
            return False
        return True

    def _encode(self, run: Sequence[Piece]) -> Stored:
        blocks = self._reader.load(run[0].first, run[-1].last)
        batch = joined(blocks, self._reader.path)
        packed = statistics.dump(statistics.collect(batch))
        arrived = blocks[0].arrived_first, blocks[-1].arrived_last
        runs = [run for block in blocks for run in unpack_publishers(block.publishers, block.last - block.first + 1)]
        data = segments.encode(batch)
        return seal(ARROW, blocks[0].first, blocks[-1].last, arrived, data, packed, pack_publishers(runs))
