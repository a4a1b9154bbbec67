"""A stretch of a journal or a lake: which offsets lie between two moments, when they came, and single events of it.

    place       file:plant.db, the path of a journal, the directory of a lake, http://host:8420
    since       None: the oldest that is kept · an offset · a time (ISO text, datetime) · so long ago (30d, timedelta)
    until       None: the head · the same; what is named is included

A journal that was archived is read with its lake, wherever that was archived to. All of this is asked on the driver,
and reads a handful of blocks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import closing
from datetime import datetime, timedelta
from typing import NamedTuple

import pyarrow as pa

from tocsin.clock import SystemClock, as_datetime, as_micros
from tocsin.composite.leaves import CLOCK
from tocsin.errors import BoundError, EventError, JournalError, TrimmedError
from tocsin.journal.bounds import parse_duration
from tocsin.journal.lake import remembered_lake
from tocsin.journal.opening import file_path
from tocsin.journal.rows import from_arrow
from tocsin.journal.segments import between
from tocsin.model import Event, parse_time, time_text
from tocsin.payload import show
from tocsin.spark.origin import Origin, open_origin

__all__ = ["Moment", "Stretch", "stretch_of"]

Moment = datetime | timedelta | int | str | None
"""One end of a stretch, as users give it."""

_End = tuple[bool, int] | None
"""Is it an offset? And which, or which microsecond."""

_MICROSECOND = timedelta(microseconds=1)
_DURATION = re.compile(r"[0-9.]+(ms|s|m|h|d)")
_OFFSET = re.compile(r"[0-9]{1,18}")


class Stretch(NamedTuple):
    """Offsets from `first` to `last`, both included, and the journal times of both, in microseconds."""

    url: str
    lake: str | None
    token: str | None
    ca: str | None
    first: int
    last: int
    begin: int
    end: int
    upto: int
    """Timers that are due at this instant or before have fired when it is over."""

    @property
    def options(self) -> dict[str, str]:
        """How the source reads it."""
        given = {"url": self.url, "lake": self.lake, "token": self.token, "ca": self.ca}
        ends = {"startingOffset": str(self.first), "endingOffset": str(self.last)}
        return {name: value for name, value in given.items() if value is not None} | ends

    def events(self, offsets: Collection[int]) -> dict[int, Event]:
        """Some events by their offsets; those that are not kept any more are missing."""
        with closing(open_origin(self.url, self.lake, self.token, ca=self.ca)) as origin:
            found = {}
            for offset in sorted(offsets):
                for row in _rows(origin, offset):
                    found[offset] = from_arrow(row)[0]
        return found


def stretch_of(
    place: str | os.PathLike[str],
    since: Moment = None,
    until: Moment = None,
    *,
    lake: str | os.PathLike[str] | None = None,
    token: str | None = None,
    ca: str | None = None,
) -> Stretch:
    """What lies between two moments.

    Raises:
        BoundError: a moment means nothing, or nothing lies between them.
        JournalError: there is no such journal.
        LakeError: there is no such lake, or it is another journal's.
        NetworkError: there is no node, or it does not let us in.
    """
    url = _url(os.fspath(place))
    archive = _lake(url, lake)
    now = SystemClock().now()
    low, high = _end(since, "since", now), _end(until, "until", now)
    with closing(open_origin(url, archive, token, ca=ca, patience=0)) as origin:  # who asks is waiting for an answer
        kept, head = origin.first, origin.head
        if kept > head:
            raise BoundError(f"{url} is empty", field="since", help="publish something first: tocsin pub …")
        first = max(kept, _first(origin, low))
        last = min(head, _last(origin, high))
        if first > last:
            raise _nothing(origin, url, low, high)
        begin, _ = _known(origin, first)
        end, kind = _known(origin, last)
    upto = end if kind == CLOCK else end - 1  # behind a clock record nothing else comes at its instant
    if high is not None and not high[0]:  # time went on without events, but not beyond this moment
        end = upto = max(end, min(high[1], now))
    return Stretch(url, archive, token, ca, first, last, begin, end, upto)


def _url(place: str) -> str:
    if re.match(r"(file|memory|https?):", place):
        return place
    if "://" in place:
        raise JournalError(f"{place} is no place of events", path=place, help="give file:plant.db, a lake or http://…")
    return f"file:{os.path.abspath(place)}"


def _lake(url: str, lake: str | os.PathLike[str] | None) -> str | None:
    if lake is not None:
        return os.fspath(lake)
    path = os.path.abspath(file_path(url)) if url.startswith("file:") else ""
    found = remembered_lake(path) if os.path.isfile(path) else None
    return found if found is not None and os.path.isdir(found) else None


def _end(given: Moment, name: str, now: int) -> _End:
    """One end, as it was given."""
    if given is None:
        return None
    if isinstance(given, str):
        text = given.strip()
        if _OFFSET.fullmatch(text):
            return True, int(text)
        if _DURATION.fullmatch(text):
            return False, now - parse_duration(text) // _MICROSECOND
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return True, given
    if isinstance(given, timedelta) and given >= timedelta(0):
        return False, now - given // _MICROSECOND
    try:
        return False, as_micros(parse_time(given, name))
    except EventError:
        raise BoundError(
            f"{name} is {show(given)}",
            field=name,
            help="give a time such as 2026-01-31T12:00:00Z, so long ago such as 30d, or an offset",
        ) from None


def _first(origin: Origin, end: _End) -> int:
    if end is None:
        return origin.first
    return end[1] if end[0] else origin.offset_at(end[1])


def _last(origin: Origin, end: _End) -> int:
    if end is None:
        return origin.head
    return end[1] if end[0] else origin.offset_at(end[1] + 1) - 1


def _nothing(origin: Origin, url: str, low: _End, high: _End) -> BoundError:
    shown = [f"{word} {_shown(end)}" for word, end in (("from", low), ("to", high)) if end is not None]
    oldest, newest = (time_text(as_datetime(_known(origin, offset)[0])) for offset in (origin.first, origin.head))
    return BoundError(
        f"there are no events in {url} {' '.join(shown)}",
        field="since" if low is not None else "until",
        help=f"it has offsets {origin.first:,} to {origin.head:,}, from {oldest} to {newest}",
    )


def _shown(end: _End) -> str:
    assert end is not None
    return f"offset {end[1]:,}" if end[0] else time_text(as_datetime(end[1]))


def _known(origin: Origin, offset: int) -> tuple[int, str]:
    """When an event came, and of what type it is; of one that was lost, when its neighbours came."""
    for row in _rows(origin, offset, ("arrived", "type")):
        return row.column("arrived").cast(pa.int64())[0].as_py(), row.column("type")[0].as_py()
    return next(block.arrived[1] for block in origin.blocks(offset, offset)), ""


def _rows(origin: Origin, offset: int, columns: Collection[str] | None = None) -> list[pa.RecordBatch]:
    """The row of an offset, if it is there."""
    try:
        found = [between(block.batch(columns), offset, offset) for block in origin.blocks(offset, offset)]
    except TrimmedError:
        return []
    return [row for row in found if row.num_rows]
