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
    "distinct",
    "joined",
    "made_of",
    "positions",
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
    """What an operator has open: openers, what came since, the next tick."""

    openers: list[Occurrence]
    middles: list[Occurrence] = []
    due: int | None = None
    kinds: list[int] = []
    """Of ANY in continuous: which kinds the openers are."""


def joined(items: Sequence[Occurrence], instant: int | None = None) -> Occurrence:
    """One occurrence made of several, parts in the order given; detected at the last of them, or by a timer."""
    first, start = min([item.begins for item in items])
    last, end = max([item.ends for item in items])
    parts = tuple([part for item in items for part in item.parts])
    instants = tuple([instant for item in items for instant in item.instants])
    if instant is not None:
        last, end, instants = instant, TIMER, (*instants, instant)
    return Occurrence(first, start, last, end, parts, instants)


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
