"""A look back: how many events of a stretch of the journal a filter matches, when they came, and the newest of them.

    blocks, newest first ─ do their statistics say enough? ─▶ counted unread
                          └─▶ gathered ─ sieves ─▶ counted by their times

Promised: exact counts of what was looked at, which is what came last: whoever may not work for long (`ends`) knows
everything from `first` on, and nothing of what lies before. System records do not count, nor what lies outside the
scope of who asks: of such events nothing can be told from the answer. Blocks are read only where their statistics do
not say enough, and then no more columns than are asked. Reading needs no lock and delays no writer.
Not promised: any knowledge of expiry or cancellation, unless `alive` has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tocsin.errors import TrimmedError
from tocsin.filters.filter import Filter
from tocsin.journal import history, rows
from tocsin.journal.contract import Block, Journal
from tocsin.journal.gather import Gathering
from tocsin.journal.segments import between
from tocsin.journal.sieve import Flags, Report, Sieve
from tocsin.model import Event

__all__ = ["Survey", "Times", "events_at"]

_TOGETHER: Final = 8_192  # events of small blocks that are read together
_NONE: Final = np.zeros(0, np.int64)
Alive = Callable[[pa.RecordBatch], Flags]


class Times:
    """Equal stretches of time from a moment on, and how many events came in each."""

    def __init__(self, start: int, width: int, count: int) -> None:
        """Begin with none; times are in microseconds."""
        self.start, self.width = start, width
        self.seen, self.matched = np.zeros(count, np.int64), np.zeros(count, np.int64)

    def place(self, moment: int) -> int:
        """The stretch that a moment lies in; what lies outside all is in the first or the last."""
        return min(max((moment - self.start) // self.width, 0), len(self.seen) - 1)

    def add(self, counts: Any, moments: Any) -> None:
        """Count events that came at these moments."""
        places = np.clip((moments - self.start) // self.width, 0, len(counts) - 1)
        counts += np.bincount(places, minlength=len(counts))


class Survey:
    """One look back, from its start to where it ended."""

    def __init__(
        self,
        wanted: Filter | None = None,
        scope: Filter | None = None,
        *,
        times: Times | None = None,
        examples: int = 0,
        enough: int | None = None,
        alive: Alive | None = None,
    ) -> None:
        """Say what is looked for; nothing is read yet.

        Args:
            wanted: what is to be matched; None: nothing is, events are only counted.
            scope: all that may be counted; None: everything.
            times: count by time, too.
            examples: how many of the newest that match are kept.
            enough: end after so many that match, from 1.
            alive: which events of a batch with `offset`, `arrived` and `ttl` may match; None: all.
        """
        self._scope = Sieve(scope)  # leaves out system records, also without a filter
        self._is_scoped = scope is not None
        self._wanted = Sieve(wanted, system=True) if wanted is not None else None
        self._times, self._most_examples, self._enough, self._alive = times, examples, enough, alive
        needed = {"arrived", *self._scope.columns, *(() if self._wanted is None else self._wanted.columns)}
        self._columns = needed if alive is None else needed | {"ttl"}
        self._report = Report()
        self.seen = self.matched = 0
        """Events that were looked at, and those of them that match."""
        self.oldest: int | None = None
        """When the first of those came, as far as was looked."""
        self.newest: int | None = None
        """When the last of them did."""
        self.examples: list[int] = []
        """Offsets, the newest first."""
        self.first = 0
        """All from this offset on was looked at."""
        self.complete = False
        """Was that all?"""

    def run(self, journal: Journal, first: int, last: int, ends: Callable[[], bool] = lambda: False) -> None:
        """Look at the events from `first` to `last`, the last ones first.

        Args:
            journal: where to look; what was trimmed is passed over.
            first: the first offset.
            last: the last offset.
            ends: must it end? Asked between readings, each of which takes some milliseconds.

        Raises:
            JournalDamagedError: a block that was needed cannot be read.
        """
        self.first = last + 1
        for blocks in _stretches(history.kept_blocks(journal, first, last, backwards=True)):
            if ends():
                return
            with contextlib.suppress(TrimmedError):  # it has gone since it was found
                self._look(blocks, first, last)
            self.first = max(first, blocks[0].first)
            if self.matched == self._enough:
                break
        else:
            self.first = first
        self.complete = True

    def _look(self, blocks: Sequence[Block], first: int, last: int) -> None:
        """Look at blocks that follow one another."""
        moments, offsets = [_NONE], [_NONE]
        for batch in self._read(block for block in blocks if not self._is_counted(block, first, last)):
            batch = between(batch, first, last)
            places = self._matches(batch)
            moments.append(_moments(batch)[places])
            offsets.append(batch.column("offset").to_numpy()[places])
        came, numbers = np.concatenate(moments), np.concatenate(offsets)
        if self._enough is not None:
            spare = max(0, len(came) - (self._enough - self.matched))
            came, numbers = came[spare:], numbers[spare:]
        if not len(came):
            return
        self.matched += len(came)
        self.oldest = int(came[0])
        self.newest = int(came[-1]) if self.newest is None else self.newest
        if self._times is not None:
            self._times.add(self._times.matched, came)
        self.examples += numbers[::-1][: self._most_examples - len(self.examples)].tolist()

    def _is_counted(self, block: Block, first: int, last: int) -> bool:
        """Count a block by its statistics alone; False: they do not say enough."""
        known = block.statistics
        if known is None or known.offsets != (block.first, block.last) or block.first < first or block.last > last:
            return False
        if self._is_scoped:  # how many it may see cannot be known, unless there is none
            return not self._scope.may_match(known)
        if self._wanted is not None and self._wanted.may_match(known):
            return False
        count = known.rows - known.system
        if count and self._times is not None:
            place = self._times.place(known.arrived[0])
            if place != self._times.place(known.arrived[1]):
                return False
            self._times.seen[place] += count
        self.seen += count
        return True

    def _read(self, blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
        gathering = Gathering(self._columns)
        for block in blocks:
            yield from gathering.add(block)
        yield from gathering.rest()

    def _matches(self, batch: pa.RecordBatch) -> Any:
        """Count the rows of a batch that may be seen; the numbers of those that match."""
        seen = self._passed(self._scope, batch)
        self.seen += int(np.count_nonzero(seen))
        if self._times is not None:
            self._times.add(self._times.seen, _moments(batch)[seen])
        if self._wanted is None:
            return _NONE
        asked = seen if self._alive is None else seen & self._alive(batch)
        return np.flatnonzero(self._passed(self._wanted, batch, asked))

    def _passed(self, sieve: Sieve, batch: pa.RecordBatch, only: Flags | None = None) -> Flags:
        found = np.zeros(batch.num_rows, np.bool_)
        for piece in sieve.rows(batch, self._report, only=only):
            found[piece] = True
        return found


def events_at(journal: Journal, offsets: Iterable[int]) -> Iterator[Event]:
    """The events at some offsets, in this order; what was trimmed meanwhile is left out. Neighbours cost least."""
    held: Block | None = None
    for offset in offsets:
        if held is None or not held.first <= offset <= held.last:
            held = next(history.kept_blocks(journal, offset, offset), None)
            batch = held.batch() if held is not None else None
        if batch is not None:
            yield from rows.from_arrow(between(batch, offset, offset))


def _moments(batch: pa.RecordBatch) -> Any:
    return batch.column("arrived").cast(pa.int64()).to_numpy()


def _stretches(blocks: Iterator[Block]) -> Iterator[list[Block]]:
    """Blocks that come newest first, in lists that are read together, each in the order of the journal."""
    waiting: list[Block] = []
    events = 0
    for block in blocks:
        waiting.append(block)
        events += block.last - block.first + 1
        if events >= _TOGETHER:
            yield waiting[::-1]
            waiting, events = [], 0
    if waiting:
        yield waiting[::-1]
