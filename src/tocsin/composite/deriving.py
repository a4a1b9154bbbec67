"""Derived events: what tells others of a detection.

The id is a hash of what was detected and by which definition, so the same detection has the same id everywhere and for
ever. It is blake2b over MessagePack of

    ((name, text, context[, semantics]), key, [(source, id) …], [tick …], [instant …])

What a definition contributes to it is hashed once. The event is a copy of a checked one, with fields that need no
check: they come out of events that were checked themselves. It is as secret as the most secret of its parts.

Who stores many of them in columns takes `Derived`: the same events, with key and payload as the JSON that a journal has
of them, and no object for each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from tocsin.clock import as_datetime
from tocsin.composite.expression import Definition
from tocsin.composite.keys import Key, shown
from tocsin.composite.leaves import SOURCE
from tocsin.composite.occurrence import Occurrence, Part
from tocsin.model import CLASSIFICATION, Event, time_text

__all__ = ["Derived", "Deriver", "PairKey", "Told", "begun", "deriver"]

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


Told = tuple[str, str, int, int, bytes | None, int, bytes]
"""A derived event: what the columns of `Derived` hold, in their order."""


class Derived:
    """Derived events in columns, in the order they were found."""

    __slots__ = ("data", "ends", "ids", "keys", "levels", "times", "types")

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

    def __len__(self) -> int:
        """How many there are."""
        return len(self.ids)

    def extend(self, told: Sequence[Told]) -> None:
        """Add several."""
        if told:
            columns = (self.ids, self.types, self.times, self.ends, self.keys, self.levels, self.data)
            for column, values in zip(columns, zip(*told, strict=True), strict=True):
                column.extend(values)  # type: ignore[arg-type]


class PairKey:
    """A key as what is told with it wants it: made when something is told."""

    __slots__ = ("_by", "_key", "packed", "text")

    def __init__(self, by: tuple[str, ...], key: Key) -> None:
        """Take fields and values; there must be some."""
        self._by, self._key = by, key
        self.text = self.packed = b""

    def ready(self) -> None:
        """Make JSON and MessagePack of it."""
        self.text, self.packed = _write(shown(self._by, self._key)), _encode(self._key)


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
        self._begun = begun(definition)
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
        return True

    def pair(self, key: PairKey, opener: Part, closer: Part) -> Told:
        """What is told of two events: the same as of an occurrence that has these parts, in less time."""
        if not key.text:
            key.ready()
        made = self._begun.copy()
        named = _encode(((opener.source, opener.id), (closer.source, closer.id)))
        made.update(b"%b%b\x90\x90" % (key.packed, named))  # neither ticks nor instants
        first = _Part(opener.name or "e1", opener.offset, opener.id, opener.source)  # type: ignore[arg-type]
        second = _Part(closer.name or "e2", closer.offset, closer.id, closer.source)  # type: ignore[arg-type]
        return (
            made.hexdigest(),
            self.name,
            closer.time,
            closer.offset,  # type: ignore[return-value]
            key.text,
            max(opener.level, closer.level),
            _write(_Data([first, second], msgspec.Raw(key.text))),
        )

    def _told(
        self, key: Key, occurrence: Occurrence, part_of: Callable[..., Any], tick_of: Callable[..., Any]
    ) -> tuple[str, list[Any], int]:
        """The id, what is told of the parts, and how secret it is."""
        primitive, ticks, parts, level, place = [], [], [], 0, 0
        for part in occurrence.parts:
            place += 1
            name, offset = part.name, part.offset
            if offset is None:
                ticks.append(part.time)
                parts.append(tick_of(name or f"t{place}", time_text(as_datetime(part.time))))
                continue
            each, source = part.id, part.source
            primitive.append((source, each))
            if name is None:
                name = _NAMES[place] if place < len(_NAMES) else f"e{place}"
            parts.append(part_of(name, offset, each, source))
            if part.level > level:
                level = part.level
        made = self._begun.copy()
        made.update(_encode((key, primitive, ticks, occurrence.instants))[1:])  # without the beginning of four
        return made.hexdigest(), parts, level


def _part(name: str, offset: int, id: str, source: str) -> dict[str, Any]:
    return {"name": name, "offset": offset, "id": id, "source": source}


def _tick(name: str, time: str) -> dict[str, Any]:
    return {"name": name, "time": time}
