"""Composite events within an agent: a detector, and the objects that half detected events are about.

A detector knows fields and offsets, not objects. So the occurrences that were fed are kept by their offset until
nothing that is half detected holds them: now and then the detector is asked what waits, and everything else is dropped.
That costs about as much as what is open, and is done again only when twice as much is kept.

Promised: what is kept grows with what is open, never with what has happened.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec

from tocsin.composite.detector import Detector
from tocsin.composite.expression import Definition
from tocsin.errors import RuleError, TocsinError
from tocsin.led.occurrence import Occurrence, Part, fields
from tocsin.model import Event

__all__ = ["Local"]

_VERSION: Final = 1
_FEWEST: Final = 1024
"""So few occurrences are kept without looking whether they are needed."""


class _Kept(msgspec.Struct, array_like=True):
    offset: int
    name: str
    event: Event
    fields: dict[str, Any]


class _Stored(msgspec.Struct, array_like=True):
    version: int
    detector: bytes
    offset: int
    heard: int
    kept: list[_Kept]


class Local:
    """The detector of an agent. Whoever calls it holds the agent's lock."""

    def __init__(self) -> None:
        """Begin with no definitions."""
        self.detector = Detector()
        self.heard = 0
        """The offset of the last event that came from a node."""
        self._offset = 0
        self._kept: dict[int, Occurrence] = {}
        self._sweep_at = _FEWEST

    @property
    def kept(self) -> int:
        """How many occurrences are kept."""
        return len(self._kept)

    def next_offset(self) -> int:
        """The place of the next event among those of this agent."""
        return self._offset + 1

    def feed(self, occurrence: Occurrence) -> list[Event]:
        """Take an occurrence whose event has the next offset; returns what was detected."""
        self._offset += 1
        if not self.detector.definitions():
            return []
        if len(self._kept) >= self._sweep_at:
            self._sweep()
        self._kept[self._offset] = occurrence
        return self.detector.feed(occurrence.event)

    def parts(self, event: Event) -> tuple[Part, ...]:
        """The constituents of what was detected."""
        found = []
        for about in event.data["parts"]:
            found.append(Part(about["name"], self._kept.get(about.get("offset", 0)), about))
        return tuple(found)

    def _sweep(self) -> None:
        names = [each.name for each in self.detector.definitions()]
        open = [each for name in names for each in self.detector.waiting(name, limit=sys.maxsize)]
        held = {offset for each in open for offset in each.offsets}
        self._kept = {offset: self._kept[offset] for offset in sorted(held) if offset in self._kept}
        self._sweep_at = max(_FEWEST, 2 * len(self._kept))

    # -- state

    def snapshot(self) -> bytes:
        """What is half detected, with those parameters that JSON can hold."""
        self._sweep()
        kept = [_Kept(offset, each.name, each.event, fields(each.params)) for offset, each in self._kept.items()]
        return msgspec.msgpack.encode(_Stored(_VERSION, self.detector.snapshot(), self._offset, self.heard, kept))

    def restore(self, stored: bytes) -> None:
        """Take up a state; definitions stay as they are, and those the state does not know begin anew.

        Raises:
            RuleError: these bytes are none of ours, or of a later version.
        """
        try:
            found = msgspec.msgpack.decode(stored, type=_Stored)
            detector = Detector.restore(found.detector) if found.version == _VERSION else Detector()
        except (msgspec.DecodeError, ValueError, TocsinError) as error:
            raise RuleError(f"this is no state of an agent ({error})", help="restore what snapshot() gave") from None
        if found.version != _VERSION:
            raise RuleError(f"the state has version {found.version}", help=f"this program knows {_VERSION}")
        ours = {each.name: each for each in self.detector.definitions()}
        unknown = [each for each in detector.definitions() if not _same(each, ours.get(each.name))]
        for each in reversed(unknown):  # those first that are made of others
            detector.undefine(each.name)
        known = {each.name for each in detector.definitions()}
        for each in ours.values():
            if each.name not in known:
                detector.define(each.name, each.text, each.context, each.semantics)
        self.detector, self._offset, self.heard = detector, found.offset, found.heard
        self._kept = {each.offset: Occurrence(each.name, each.event, each.fields) for each in found.kept}
        self._sweep_at = max(_FEWEST, 2 * len(self._kept))


def _same(one: Definition, other: Definition | None) -> bool:
    return other is not None and (one.text, one.context) == (other.text, other.context)
