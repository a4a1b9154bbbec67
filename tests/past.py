"""A journal for tests of reading: blocks of any size with statistics, from events in a list. It takes nothing in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from tocsin.clock import as_datetime, as_micros
from tocsin.errors import EventError, TrimmedError
from tocsin.journal import rows, segments, statistics
from tocsin.journal.statistics import Statistics
from tocsin.model import Event

NOON = as_micros(datetime(2026, 1, 1, 12, tzinfo=UTC))
SECOND = 1_000_000
MINUTE = 60 * SECOND


def stored(events: Sequence[Event], first: int = 1, arrived: Sequence[int] | None = None) -> list[Event]:
    """The events as a journal gives them back, without those it would refuse."""
    times = arrived or [NOON + SECOND * place for place in range(len(events))]
    found: list[Event] = []
    for event, moment in zip(events, times, strict=True):
        try:
            row = rows.to_row(event)
        except EventError:
            continue
        found.append(rows.from_row(row, first + len(found), moment))
    return found


def batch_of(events: Sequence[Event]) -> pa.RecordBatch:
    """Stored events as Arrow."""
    arrived = [as_micros(event.arrived) for event in events if event.arrived is not None]
    return rows.to_arrow([rows.to_row(event) for event in events], (events[0].offset or 1) if events else 1, arrived)


class PastBlock:
    """Some events; counts how often it is read."""

    def __init__(self, events: Sequence[Event], told: bool = True) -> None:
        self.data = segments.encode(batch_of(events))
        self.first, self.last = events[0].offset or 0, events[-1].offset or 0
        self.arrived = tuple(as_micros(each.arrived) for each in (events[0], events[-1]) if each.arrived is not None)
        self.statistics: Statistics | None = statistics.collect(self.batch()) if told else None
        self.reads = 0

    def batch(self, columns: Collection[str] | None = None) -> pa.RecordBatch:
        self.reads = getattr(self, "reads", 0) + 1
        return segments.decode(self.data, columns)

    def events(self) -> list[Event]:
        return rows.from_arrow(self.batch())


class LostBlock(PastBlock):
    """What `journal repair` leaves of a damaged block: offsets without events."""

    def batch(self, columns: Collection[str] | None = None) -> pa.RecordBatch:
        return segments.decode(self.data, columns).slice(0, 0)


class PastJournal:
    """What happened, in blocks of `size` events."""

    def __init__(self, events: Sequence[Event] = (), size: int = 100, told: bool = True) -> None:
        self.parts = [PastBlock(events[start : start + size], told) for start in range(0, len(events), size)]
        self.first = 1

    @property
    def head(self) -> int:
        return self.parts[-1].last if self.parts else 0

    def trim(self, before: int) -> None:
        self.parts = [block for block in self.parts if block.last >= before]
        self.first = self.parts[0].first

    def blocks(self, first: int = 1, last: int | None = None, *, backwards: bool = False) -> Iterator[PastBlock]:
        if 1 < first < self.first:
            raise TrimmedError(f"offset {first} is no longer kept", first=self.first)
        found = [b for b in self.parts if b.last >= first and (last is None or b.first <= last)]
        return iter(found[::-1] if backwards else found)

    def offset_at(self, moment: int) -> int:
        for block in self.parts:
            if block.arrived[1] >= moment:
                for event in block.events():
                    if event.arrived is not None and event.arrived >= as_datetime(max(moment, 0)):
                        return event.offset or 0
        return self.head + 1

    @property
    def reads(self) -> int:
        return sum(block.reads for block in self.parts)
