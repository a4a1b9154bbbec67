"""What happened, as the operators see it: occurrences, where they lie in the order of things, and windows of open ones.

Everything here is a value that MessagePack can carry: detector state is made of nothing else.

Order. A *position* is a journal time and an offset; a timer's firing has, in place of an offset, one behind all events
of its instant. Positions are compared and nothing else: equal positions are at the same instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

__all__ = [
    "TIMER",
    "Occurrence",
    "Part",
    "Position",
    "Window",
    "alone",
    "distinct",
    "joined",
    "made_of",
    "paired",
    "positions",
    "start_of",
    "tick",
    "windows_of",
    "without_values",
]

TIMER = 1 << 62
"""In place of an offset: a timer's firing, which lies behind the events of its instant and before any later one."""
Position = tuple[int, int]
"""Journal time and offset."""


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A primitive constituent: an event, or a timer's tick."""

    name: str | None
    offset: int | None
    """None: a tick."""
    id: str
    source: str
    time: int
    """Journal time, microseconds."""
    values: dict[str, Any] | None = None
    """What `WHERE` asks of it."""
    level: int = 0
    """Its place in `model.CLASSIFICATION`: what is made of it is no less secret."""


class Occurrence(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An expression has become true: from when to when, and made of what."""

    first: int
    """Time of the first constituent."""
    start: int
    """Offset of the first constituent, or TIMER."""
    last: int
    """Time at which it was detected."""
    end: int
    """Offset at which it was detected, or TIMER."""
    parts: tuple[Part, ...]
    instants: tuple[int, ...] = ()
    """The timers that took part."""

    @property
    def begins(self) -> Position:
        """Where it begins."""
        return self.first, self.start

    @property
    def ends(self) -> Position:
        """Where it ends."""
        return self.last, self.end


class Window(msgspec.Struct, array_like=True, gc=False):
    """What an operator has open: openers, what came since, the next tick.

    There may be a million of these, and most have an opener and nothing else: what is empty is None, and costs nothing.
    """

    openers: list[Occurrence]
    gathered: list[Occurrence] | None = None
    """See `middles`."""
    due: int | None = None
    met: list[int] | None = None
    """See `kinds`."""

    @property
    def middles(self) -> Sequence[Occurrence]:
        """What came since."""
        return self.gathered or ()

    @property
    def kinds(self) -> Sequence[int]:
        """Of AND and ANY in continuous: which kinds the openers are."""
        return self.met or ()

    def gather(self, middle: Occurrence) -> None:
        """Add to what came since."""
        if self.gathered is None:
            self.gathered = []
        self.gathered.append(middle)


def joined(items: Sequence[Occurrence], instant: int | None = None) -> Occurrence:
    """One occurrence made of several, parts in the order given; detected at the last of them, or by a timer."""
    one = items[0]
    first, start, last, end, parts, instants = one.first, one.start, one.last, one.end, one.parts, one.instants
    for item in items:
        if item.first < first or (item.first == first and item.start < start):
            first, start = item.first, item.start
        if item.last > last or (item.last == last and item.end > end):
            last, end = item.last, item.end
    if len(items) == 2:
        parts += items[1].parts
        instants += items[1].instants
    elif len(items) > 2:  # at once: there may be many
        parts = tuple([part for item in items for part in item.parts])
        instants = tuple([each for item in items for each in item.instants])
    if instant is not None:
        last, end, instants = instant, TIMER, (*instants, instant)
    return Occurrence(first, start, last, end, parts, instants)


def paired(one: Occurrence, other: Occurrence) -> Occurrence:
    """`joined` of two."""
    first, start, last, end = one.first, one.start, other.last, other.end
    if other.first < first or (other.first == first and other.start < start):
        first, start = other.first, other.start
    if one.last > last or (one.last == last and one.end > end):
        last, end = one.last, one.end
    return Occurrence(first, start, last, end, one.parts + other.parts, one.instants + other.instants)


def start_of(part: Part) -> int:
    """Where a part lies in its instant: its offset, or TIMER."""
    return TIMER if part.offset is None else part.offset


def alone(part: Part) -> Occurrence:
    """The occurrence of a leaf, or of an absolute time, that has this part."""
    place = TIMER if part.offset is None else part.offset
    return Occurrence(part.time, place, part.time, place, (part,))


def windows_of(cell: Iterable[Window | Part]) -> list[Window]:
    """What a cell holds, as windows; `pairs` has parts in their place."""
    return [Window([alone(each)]) if isinstance(each, Part) else each for each in cell]


def tick(instant: int, name: str | None = None) -> Occurrence:
    """A timer's firing, or an absolute time that has come."""
    return Occurrence(instant, TIMER, instant, TIMER, (Part(name, None, "", "", instant),))


def positions(occurrence: Occurrence) -> list[Position]:
    """Where its parts lie, in their order."""
    return [(part.time, TIMER if part.offset is None else part.offset) for part in occurrence.parts]


def made_of(occurrence: Occurrence) -> frozenset[Any]:
    """The events and timers it is made of, whatever their order and what they are called."""
    return frozenset((*positions(occurrence), *occurrence.instants))


def without_values(occurrence: Occurrence) -> Occurrence:
    """The same, with nothing that a `WHERE` could ask for."""
    if all(part.values is None for part in occurrence.parts):
        return occurrence
    parts = tuple([msgspec.structs.replace(part, values=None) for part in occurrence.parts])
    return msgspec.structs.replace(occurrence, parts=parts)


def distinct(occurrences: Iterable[Occurrence]) -> list[Occurrence]:
    """The first of each that have the same parts in the same order: they would have one id."""
    found: dict[tuple[Any, ...], Occurrence] = {}
    for occurrence in occurrences:
        found.setdefault((*positions(occurrence), occurrence.instants), occurrence)
    return list(found.values())
