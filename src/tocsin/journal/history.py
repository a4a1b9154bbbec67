"""The past: which events does a bound select, and what matches in a stretch of the journal.

    search   offsets of the past that a subscriber asks for; newest blocks first where only the newest count
    pieces   the same, a piece at a time
    scan     events in order with the filters they match, to refill an outbox

Promised: `search` gives exactly the offsets, ascending, of the events up to `upto` that the bound selects among those
that match and pass `alive`; n counts those, not others. No event is looked at that need not be: blocks are skipped by
their statistics, `last` stops when it has n, times are found by search. A `Report` tells what was done.
Reading needs no lock and delays no writer.
Not promised: that what was trimmed is found. Expiry is known to `retained` only; for other bounds it is `alive`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.clock import SECOND, as_micros
from tocsin.errors import TrimmedError
from tocsin.filters.filter import Filter
from tocsin.filters.index import Matcher
from tocsin.filters.printer import print_scalar
from tocsin.journal import rows, segments
from tocsin.journal.bounds import Bound, Last, Since, Within
from tocsin.journal.contract import Block, Journal
from tocsin.journal.sieve import Flags, Report, Sieve
from tocsin.model import Event

__all__ = ["Report", "first_of", "kept_blocks", "moment_of", "not_expired", "of_id", "pieces", "scan", "search"]

_FEW = 24  # a block of fewer events is read as events: Arrow columns cost more to set up than they save
_MANY = 8  # filters: from here on an index over all of them is quicker than a sieve for each
_FIRST_PIECE, _PIECE = 32, 1024
_MICROSECOND = timedelta(microseconds=1)


def search(
    journal: Journal,
    filter: Filter,
    bound: Bound,
    *,
    now: int,
    upto: int,
    alive: Callable[[Event], bool] | None = None,
    system: bool = False,
    report: Report | None = None,
) -> list[int]:
    """Return the offsets of the past that a bound selects, ascending.

    Args:
        journal: where to look.
        filter: what is wanted.
        bound: how much of it.
        now: journal time that `within` is measured from, in microseconds.
        upto: the last offset that counts as past.
        alive: is this event still to be delivered? Asked of every match before it counts; None: all are.
        system: whether system records count.
        report: filled with what the search cost.

    Raises:
        JournalDamagedError: a block that was needed cannot be read.
    """
    found = pieces(journal, filter, bound, now=now, upto=upto, alive=alive, system=system, report=report)
    return [offset for piece in found for offset in piece]


def pieces(
    journal: Journal,
    filter: Filter,
    bound: Bound,
    *,
    now: int,
    upto: int,
    alive: Callable[[Event], bool] | None = None,
    system: bool = False,
    report: Report | None = None,
) -> Iterator[list[int]]:
    """Give what `search` returns in lists of at most a block's events.

    Memory: one block, and for `last` 8 bytes for each offset found. Events that come in meanwhile change nothing.
    """
    quest = _Quest(Sieve(filter, system=system), alive, report if report is not None else Report())
    first = first_of(journal, bound, now)
    if isinstance(bound, Last):
        yield from _newest(quest, journal, first, upto, bound.n)
        return
    if not isinstance(bound, Within | Since):
        quest.now = now
    for block in kept_blocks(journal, first, upto):
        with contextlib.suppress(TrimmedError):  # it has gone since it was found
            for offsets in quest.offsets(block, first, upto):
                yield offsets.tolist()


def scan(
    journal: Journal,
    filters: Mapping[Any, Filter] | Matcher,
    first: int,
    last: int,
    priority: int | Collection[int] | None = None,
    *,
    system: bool = False,
    report: Report | None = None,
) -> Iterator[tuple[int, Event, list[Any]]]:
    """Give the events from `first` to `last` that match, in order: offset, event, and the keys of its filters.

    Args:
        journal: where to look; what was trimmed is passed over.
        filters: by key; or a matcher, which cannot be asked about statistics, so that every block is read.
        first: the first offset.
        last: the last offset.
        priority: the level that counts, or several; None: all.
        system: whether system records count.
        report: filled with what the scan cost, as it goes on.
    """
    report = report if report is not None else Report()
    priorities = (priority,) if isinstance(priority, int) else priority
    anything = Sieve(None, system=system, priorities=priorities)
    sieves: dict[Any, Sieve] = {}
    matcher = filters if isinstance(filters, Matcher) else None
    if not isinstance(filters, Matcher):
        sieves = {key: Sieve(each, system=system, priorities=priorities) for key, each in filters.items()}
        matcher = Matcher(filters.items()) if len(filters) > _MANY else None
    for block in kept_blocks(journal, first, last):
        known = block.statistics
        hopeful = {key: sieve for key, sieve in sieves.items() if sieve.may_match(known)}
        if not (hopeful if sieves or matcher is None else anything.may_match(known)):
            report.skipped += 1
            continue
        report.read += 1
        with contextlib.suppress(TrimmedError):  # it has gone since it was found
            for events, keys in _matches(block, first, last, anything, hopeful, matcher, report):
                for event, matched in zip(events, keys, strict=True):
                    if matched:
                        report.found += 1
                        yield event.offset or 0, event, matched


def _matches(
    block: Block,
    first: int,
    last: int,
    anything: Sieve,
    sieves: Mapping[Any, Sieve],
    matcher: Matcher | None,
    report: Report,
) -> Iterator[tuple[list[Event], list[list[Any]]]]:
    """Events of one block in pieces, and for each the keys of what it matches."""
    if _is_small(block):
        events = [event for event in _cut(block.events(), first, last) if anything.matches(event)]
        report.rows += len(events)
        report.made += len(events)
        if matcher is not None:
            yield events, matcher.match_batch(events)
        else:
            yield events, [[key for key, sieve in sieves.items() if sieve.matches(event)] for event in events]
        return
    batch = segments.between(block.batch(), first, last)
    report.rows += batch.num_rows
    keys: dict[int, list[Any]] = {}
    if matcher is not None:
        places = [place for piece in anything.rows(batch, report) for place in piece.tolist()]
    else:
        for key, sieve in sieves.items():
            for piece in sieve.rows(batch, report):
                for place in piece.tolist():
                    keys.setdefault(place, []).append(key)
        places = sorted(keys)
    for start in range(0, len(places), _PIECE):
        chosen = places[start : start + _PIECE]
        events = _made(batch, chosen, report)
        yield events, matcher.match_batch(events) if matcher is not None else [keys[place] for place in chosen]


# -- the past of one filter


class _Quest:
    """One search: what is looked for, and what it has cost."""

    def __init__(self, sieve: Sieve, alive: Callable[[Event], bool] | None, report: Report) -> None:
        self.sieve, self.alive, self.report = sieve, alive, report
        self.now: int | None = None
        """The moment at which events must not have expired; None: they may have."""

    def offsets(self, block: Block, first: int, last: int, backwards: bool = False) -> Iterator[Any]:
        """Offsets of one block, in pieces."""
        known, report = block.statistics, self.report
        gone = self.now is not None and known is not None and known.expires is not None and known.expires <= self.now
        if gone or not self.sieve.may_match(known):
            report.skipped += 1
            return
        report.read += 1
        if _is_small(block):
            yield from self._of_events(_cut(block.events(), first, last), backwards)
            return
        batch = segments.between(block.batch(), first, last)
        report.rows += batch.num_rows
        only = not_expired(batch, self.now) if self.now is not None else None
        offsets = batch.column("offset").to_numpy()
        for places in self.sieve.rows(batch, report, only=only, backwards=backwards):
            if self.alive is None:
                report.found += len(places)
                yield offsets[places]
                continue
            start, size = 0, _FIRST_PIECE  # small at first: `last` may need no more
            while start < len(places):
                piece = places[start : start + size]
                start, size = start + size, min(2 * size, _PIECE)
                living = [self.alive(event) for event in _made(batch, piece, report)]
                piece = piece[np.array(living, np.bool_)]
                report.found += len(piece)
                yield offsets[piece]

    def _of_events(self, events: list[Event], backwards: bool) -> Iterator[Any]:
        self.report.rows += len(events)
        self.report.made += len(events)
        found = [event.offset for event in events if self._counts(event)]
        self.report.found += len(found)
        yield np.array(found[::-1] if backwards else found, np.int64)

    def _counts(self, event: Event) -> bool:
        if not self.sieve.matches(event):
            return False
        if self.now is not None and (end := rows.expires(event)) is not None and end <= self.now:
            return False
        return self.alive is None or self.alive(event)


def _newest(quest: _Quest, journal: Journal, first: int, upto: int, count: int) -> Iterator[list[int]]:
    """The newest `count`, found from the end and given from the beginning."""
    found = []
    missing = count
    for block in kept_blocks(journal, first, upto, backwards=True):
        with contextlib.suppress(TrimmedError):  # it has gone since it was found
            for offsets in quest.offsets(block, first, upto, backwards=True):
                found.append(offsets[:missing])
                missing -= len(found[-1])
                if not missing:
                    break
        if not missing:
            break
    quest.report.found = count - missing
    while found:
        yield found.pop()[::-1].tolist()


def first_of(journal: Journal, bound: Bound, now: int) -> int:
    """Return the first offset that a bound can select. `arrived` never decreases, so a moment is an offset."""
    if isinstance(bound, Since) and isinstance(bound.x, int):
        return bound.x
    moment = moment_of(bound, now)
    return 1 if moment is None else journal.offset_at(moment)


def moment_of(bound: Bound, now: int) -> int | None:
    """Return the moment before which a bound selects nothing; None: it names none."""
    if isinstance(bound, Since):
        return None if isinstance(bound.x, int) else as_micros(bound.x)
    age = bound.within if isinstance(bound, Last) else bound.t if isinstance(bound, Within) else None
    return None if age is None else now - age // _MICROSECOND


def of_id(journal: Journal, id: str, source: str | None = None) -> list[Event]:
    """Return the events with this id; the archive is asked only if the journal has none. Only those found are made."""
    filter = Filter(
        f"id = {print_scalar(id)}" + (f" AND source = {print_scalar(source)}" if source is not None else "")
    )
    for first, last in ((journal.kept, journal.head), (journal.first, journal.kept - 1)):
        found = [event for _, event, _ in scan(journal, {0: filter}, first, last)]
        if found:
            return found
    return []


def kept_blocks(journal: Journal, first: int, last: int, *, backwards: bool = False) -> Iterator[Block]:
    """Blocks of a range, of which some may have been trimmed, even while we look."""
    begun = False
    while last >= max(first, 1):
        try:
            for block in journal.blocks(first if first > journal.first else 1, last, backwards=backwards):
                begun = True
                yield block
                first, last = (first, block.first - 1) if backwards else (block.last + 1, last)
            return
        except TrimmedError:
            if backwards and begun:  # what is left of it has gone
                return


def _is_small(block: Block) -> bool:
    return block.last - block.first < _FEW


def _cut(events: list[Event], first: int, last: int) -> list[Event]:
    return [event for event in events if first <= (event.offset or 0) <= last]


def _made(batch: pa.RecordBatch, places: Any, report: Report) -> list[Event]:
    report.made += len(places)
    return rows.from_arrow(batch.take(pa.array(places, pa.int64())))


def not_expired(batch: pa.RecordBatch, now: int) -> Flags:
    """As `rows.expires` has it, for a whole batch."""
    lives = np.rint(batch.column("ttl").to_numpy(zero_copy_only=False) * SECOND)  # NULL becomes NaN
    forever = np.isnan(lives)
    ends = batch.column("arrived").cast(pa.int64()).to_numpy() + np.where(forever, 0, lives).astype(np.int64)
    kept: Flags = forever | (ends > now)
    return kept
