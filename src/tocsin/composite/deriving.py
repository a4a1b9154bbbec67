"""Derived events: what tells others of a detection.

The id is a hash of what was detected and by which definition, so the same detection has the same id everywhere and for
ever. It is blake2b over MessagePack of

    ((name, text, context[, semantics]), key, [(source, id) …], [tick …], [instant …])

What a definition contributes to it is hashed once. The event is a copy of a checked one, with fields that need no
check: they come out of events that were checked themselves. It is as secret as the most secret of its parts.

Who stores many of them in columns takes `Derived`: the same events, with key and payload as the JSON that a journal has
of them, and no object for each. Pairs of events may be there as numbers of rows (`Paired`): who has many makes columns
of them at once (`spark/pairing.py`), who has few lets `settle` make them as all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from tocsin.clock import as_datetime
from tocsin.composite.expression import Definition
from tocsin.composite.keys import Key, shown
from tocsin.composite.leaves import SOURCE
from tocsin.composite.occurrence import Occurrence, Part, start_of
from tocsin.composite.rows import Rows
from tocsin.model import CLASSIFICATION, Event, time_text

__all__ = ["Derived", "Deriver", "Paired", "Pairs", "begun", "called", "deriver", "event_names"]

_encode = msgspec.msgpack.Encoder().encode
_write = msgspec.json.Encoder().encode
_FIVE = b"\x95"  # MessagePack: an array of five begins
_NAMES = tuple(f"e{place}" for place in range(10))
"""What parts without a name are called, by their place."""
_TEXTS = 50_000
"""Keys of which the JSON is kept, for each list of fields."""


class _Part(msgspec.Struct, gc=False):
    name: str
    offset: int
    id: str
    source: str


class _Tick(msgspec.Struct, gc=False):
    name: str
    time: str


class _Data(msgspec.Struct, gc=False):
    parts: list[_Part | _Tick]
    key: msgspec.Raw


class Derived:
    """Derived events in columns, in the order they were found."""

    __slots__ = ("data", "ends", "ids", "keys", "levels", "pairs", "parts", "times", "types")

    def __init__(self) -> None:
        """Begin with none."""
        self.ids: list[str] = []
        self.types: list[str] = []
        self.times: list[int] = []
        """Microseconds."""
        self.ends: list[int] = []
        """Offsets of the events that completed them; `TIMER` where a timer did."""
        self.keys: list[bytes | None] = []
        """JSON of fields and values; None: without BY."""
        self.levels: list[int] = []
        """Places in `model.CLASSIFICATION`."""
        self.data: list[bytes] = []
        """JSON of the payload."""
        self.parts: list[tuple[Part, ...]] = []
        """What they are made of."""
        self.pairs: list[Paired] = []
        """Those that come behind them, and are not in the columns."""

    def settle(self) -> None:
        """Put all into the columns."""
        pairs, self.pairs = self.pairs, []
        for paired in pairs:
            found = [
                (paired.order[closer], place, key, opener, closer)
                for place, each in enumerate(paired.found)
                for opener, closer, key in zip(each.openers, each.closers, each.keys, strict=True)
            ]
            for row, place, key, opener, closer in sorted(found, key=lambda each: each[:2]):
                of = paired.found[place]
                first, last = paired.part(opener, of.names[0]), paired.part(closer, of.names[1])
                whole = Occurrence(first.time, start_of(first), last.time, paired.rows.offsets[row], (first, last))
                of.deriver.add(self, paired.keys[key], whole, None)


class Pairs(NamedTuple):
    """What a definition has detected; of one closer the oldest opener comes first."""

    deriver: Deriver
    names: tuple[str | None, str | None]
    """What opener and closer are called."""
    openers: list[int]
    """Places in `Paired.order`; those behind the last are of `Paired.before`."""
    closers: list[int]
    """Places in `Paired.order`."""
    keys: list[int]
    """Places in `Paired.keys`."""


class Paired(NamedTuple):
    """Pairs of events that were detected in some rows: no two of them have one id."""

    rows: Rows
    order: Any
    """Which rows were looked at, in an array: all other numbers are places in it."""
    times: list[int]
    """Of these, microseconds: never before what had happened."""
    before: list[Part]
    """Openers that came before the rows."""
    by: tuple[str, ...]
    keys: list[Key]
    found: list[Pairs]
    """In the order of definitions."""

    def part(self, at: int, name: str | None) -> Part:
        """What stands in a place, as a constituent."""
        if at >= len(self.times):
            return self.before[at - len(self.times)]
        return self.rows.part(self.order[at], name, self.times[at])


def deriver(definition: Definition) -> Callable[[Key, Occurrence], Event]:
    """A function that makes the events of a definition."""
    return Deriver(definition, {}).event


def begun(definition: Definition) -> Any:
    """The hash of a derived id up to what the definition contributes; the MessagePack of the other four goes on."""
    semantics = () if definition.semantics == "detection" else (definition.semantics,)
    named = _encode((definition.name, definition.text, definition.context, *semantics))
    return hashlib.blake2b(_FIVE + named, digest_size=16)


class Deriver:
    """Makes the events of a definition."""

    def __init__(self, definition: Definition, texts: dict[Key, msgspec.Raw]) -> None:
        """Prepare what is the same for all.

        Args:
            definition: whose events are made.
            texts: what is known of keys as JSON; definitions that go BY the same fields may share it.
        """
        self.name, self._by, self._texts = definition.name, definition.by, texts
        self.hash: Callable[[], Any] = begun(definition).copy
        """Begins the hash of an id: see `begun`."""
        self._copy: Callable[[], Event] = Event(definition.name, SOURCE, id="blank").__copy__  # type: ignore[attr-defined]

    def event(self, key: Key, occurrence: Occurrence) -> Event:
        """A detection as an event."""
        name, parts, level = self._told(key, occurrence, _part, _tick)
        event = self._copy()
        force_setattr(event, "id", name)
        force_setattr(event, "time", as_datetime(occurrence.last))
        force_setattr(event, "data", {"parts": parts, "key": shown(self._by, key)})
        force_setattr(event, "attributes", {})
        if level:
            force_setattr(event, "classification", CLASSIFICATION[level])
        return event

    def add(self, derived: Derived, key: Key, occurrence: Occurrence, seen: set[str] | None) -> bool:
        """Put a detection into columns, unless `seen` has its id, which is then noted; was it put there?"""
        name, parts, level = self._told(key, occurrence, _Part, _Tick)
        if seen is not None:
            if name in seen:
                return False
            seen.add(name)
        text = self._texts.get(key)
        if text is None:
            if len(self._texts) >= _TEXTS:
                self._texts.clear()
            text = self._texts[key] = msgspec.Raw(_write(shown(self._by, key)))
        derived.ids.append(name)
        derived.types.append(self.name)
        derived.times.append(occurrence.last)
        derived.ends.append(occurrence.end)
        derived.keys.append(bytes(text) if key else None)
        derived.levels.append(level)
        derived.data.append(_write(_Data(parts, text)))
        derived.parts.append(occurrence.parts)
        return True

    def _told(
        self, key: Key, occurrence: Occurrence, part_of: Callable[..., Any], tick_of: Callable[..., Any]
    ) -> tuple[str, list[Any], int]:
        """The id, what is told of the parts, and how secret it is."""
        primitive, ticks, parts, level, place = [], [], [], 0, 0
        for part in occurrence.parts:
            place += 1
            offset = part.offset
            if offset is None:
                ticks.append(part.time)
                parts.append(tick_of(called(part, place), time_text(as_datetime(part.time))))
                continue
            each, source = part.id, part.source
            primitive.append((source, each))
            parts.append(part_of(part.name or called(part, place), offset, each, source))
            if part.level > level:
                level = part.level
        made = self.hash()
        made.update(_encode((key, primitive, ticks, occurrence.instants))[1:])  # without the beginning of four
        return made.hexdigest(), parts, level


def called(part: Part, place: int) -> str:
    """What a part is called that stands in a place, from 1 on."""
    if part.name is not None:
        return part.name
    if part.offset is None:
        return f"t{place}"
    return _NAMES[place] if place < len(_NAMES) else f"e{place}"


def event_names(names: Iterable[str | None]) -> list[str]:
    """What events are called that stand side by side, as `called` has it."""
    return [name or f"e{place}" for place, name in enumerate(names, 1)]


def _part(name: str, offset: int, id: str, source: str) -> dict[str, Any]:
    return {"name": name, "offset": offset, "id": id, "source": source}


def _tick(name: str, time: str) -> dict[str, Any]:
    return {"name": name, "time": time}
