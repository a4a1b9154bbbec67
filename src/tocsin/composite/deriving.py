"""Derived events: what tells others of a detection.

The id is a hash of what was detected and by which definition, so the same detection has the same id everywhere and for
ever. It is blake2b over MessagePack of

    ((name, text, context[, semantics]), key, [(source, id) …], [tick …], [instant …])

What a definition contributes to it is hashed once. The event is a copy of a checked one, with fields that need no
check: they come out of events that were checked themselves. It is as secret as the most secret of its parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from tocsin.clock import as_datetime
from tocsin.composite.expression import Definition
from tocsin.composite.keys import Key, shown
from tocsin.composite.leaves import SOURCE
from tocsin.composite.occurrence import Occurrence, Part
from tocsin.model import CLASSIFICATION, Event, time_text

__all__ = ["deriver"]

_encode = msgspec.msgpack.Encoder().encode
_FIVE = b"\x95"  # MessagePack: an array of five begins


def deriver(definition: Definition) -> Callable[[Key, Occurrence], Event]:
    """A function that makes the events of a definition."""
    by = definition.by
    semantics = () if definition.semantics == "detection" else (definition.semantics,)
    named = _encode((definition.name, definition.text, definition.context, *semantics))
    begun = hashlib.blake2b(_FIVE + named, digest_size=16)
    copy: Callable[[], Event] = Event(definition.name, SOURCE, id="blank").__copy__  # type: ignore[attr-defined]

    def derive(key: Key, occurrence: Occurrence) -> Event:
        primitive, ticks, parts, level = [], [], [], 0
        for place, part in enumerate(occurrence.parts, 1):
            if part.offset is None:
                ticks.append(part.time)
                parts.append(_tick(place, part))
            else:
                primitive.append((part.source, part.id))
                name = part.name or f"e{place}"
                parts.append({"name": name, "offset": part.offset, "id": part.id, "source": part.source})
                if part.level > level:
                    level = part.level
        made = begun.copy()
        made.update(_encode((key, primitive, ticks, occurrence.instants))[1:])  # without the beginning of four
        event = copy()
        force_setattr(event, "id", made.hexdigest())
        force_setattr(event, "time", as_datetime(occurrence.last))
        force_setattr(event, "data", {"parts": parts, "key": shown(by, key)})
        force_setattr(event, "attributes", {})
        if level:
            force_setattr(event, "classification", CLASSIFICATION[level])
        return event

    return derive


def _tick(place: int, part: Part) -> dict[str, Any]:
    return {"name": part.name or f"t{place}", "time": time_text(as_datetime(part.time))}
